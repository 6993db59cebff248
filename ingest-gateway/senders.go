// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/quarantine"
	"github.com/substorm/substorm/ingest-gateway/receive/proxy"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/wire"
)

// openCertificates reads the pool's certificate, if it has one.
func (g *gateway) openCertificates() (err error) {
	if g.cfg.TLSDir == "" {
		return nil
	}
	g.certificates, err = certificate.Open(certificate.Config{
		Dir: g.cfg.TLSDir, ClientCADir: g.cfg.ClientCADir, Logger: g.log, Metrics: g.metrics, Subsystem: "substorm_gateway",
	})
	return err
}

// openEdge opens the port for proxies, if there are any.
func (g *gateway) openEdge() (err error) {
	if g.cfg.EdgePort == 0 {
		return nil
	}
	g.edge, err = proxy.Listen(proxy.Config{
		Port: g.cfg.EdgePort, Sources: g.cfg.EdgeSources, Serve: g.serveBehindEdge, Refused: g.tcp.Refused, Logger: g.log, Address: g.cfg.ListenAddress,
	})
	return err
}

// serveBehindEdge hands a connection to the listener that its header selects.
func (g *gateway) serveBehindEdge(conn *net.TCPConn, source netip.AddrPort, port uint16) {
	if g.registry.Current().Serves(wire.ProtocolHTTP, port) {
		g.web.Serve(conn, source, port)
		return
	}
	g.tcp.Serve(conn, source, port)
}

// openQuarantine makes the quarantine, where unknown senders are not just refused.
func (g *gateway) openQuarantine() (err error) {
	if g.cfg.UnknownSenders != unknownSendersQuarantine {
		return nil
	}
	g.quarantine, err = quarantine.Open(quarantine.Config{
		Site: g.cfg.Site, Gateway: g.cfg.Gateway, Objects: g.objects, Dir: filepath.Join(g.cfg.DataDir, "quarantine"),
		MaxSize: g.cfg.QuarantineMaxSize, MaxAge: g.cfg.QuarantineRetention, NoSpace: diskbudget.Embedded().NoReceipts, Logger: g.log, Metrics: g.metrics,
		Settled: func(at time.Time, cause wire.Cause, datagrams int) { g.udp.Settled(at, cause, datagrams) },
	})
	return err
}

// portsOf are the ports of a protocol that accept data: from an instrument, or from an unknown
// sender.
func (g *gateway) portsOf(s *intake.Snapshot, protocol string) []uint16 {
	ports := s.Ports(protocol)
	if g.quarantine == nil {
		return ports
	}
	for _, p := range g.cfg.QuarantinePorts {
		port := uint16(p)
		taken := protocol == wire.ProtocolTCP && slices.Contains(s.Ports(wire.ProtocolHTTP), port)
		if port >= g.cfg.FirstPort && port <= g.cfg.LastPort && !taken {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
