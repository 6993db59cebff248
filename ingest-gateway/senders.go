// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"net"
	"net/netip"

	"github.com/substorm/substorm/ingest-gateway/intake/certificate"
	"github.com/substorm/substorm/ingest-gateway/receive/proxy"
	"github.com/substorm/substorm/internal/wire"
)

// openCertificates reads the pool's certificate, where it has one.
func (g *gateway) openCertificates() (err error) {
	if g.cfg.TLSDir == "" {
		return nil
	}
	g.certificates, err = certificate.Open(certificate.Config{
		Dir: g.cfg.TLSDir, ClientCADir: g.cfg.ClientCADir, Logger: g.log, Metrics: g.metrics,
	})
	return err
}

// openEdge opens the port for proxies, where there are any.
func (g *gateway) openEdge() (err error) {
	if g.cfg.EdgePort == 0 {
		return nil
	}
	g.edge, err = proxy.Listen(proxy.Config{
		Port: g.cfg.EdgePort, Sources: g.cfg.EdgeSources, Serve: g.serveBehindEdge, Refused: g.tcp.Refused, Logger: g.log,
	})
	return err
}

// serveBehindEdge hands a connection to the way in that its header selects.
func (g *gateway) serveBehindEdge(conn *net.TCPConn, source netip.AddrPort, port uint16) {
	if g.registry.Current().Serves(wire.ProtocolHTTP, port) {
		g.web.Serve(conn, source, port)
		return
	}
	g.tcp.Serve(conn, source, port)
}
