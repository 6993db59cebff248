// SPDX-License-Identifier: Apache-2.0

package http

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/wire"
)

// secure puts TLS on a connection where a listener on its port is over TLS. Each
// request decides whether a certificate must be shown: its path says for whom.
func (s *Server) secure(port uint16, c net.Conn) net.Conn {
	mode := s.cfg.Registry.Current().PortTLS(wire.ProtocolHTTP, port)
	if mode == "" {
		return c
	}
	cfg, err := s.cfg.Certificates.Config(mode)
	if err != nil {
		_ = c.Close()
		s.refuseConnection(c, wire.CauseTLSHandshake, err)
		return c
	}
	cfg = cfg.Clone()
	cfg.NextProtos, cfg.VerifyConnection = []string{"h2", "http/1.1"}, nil
	return tls.Server(c, cfg)
}

// sawState counts connections that end before they are secure: net/http shakes hands, and does not
// otherwise report a handshake that fails.
func (s *Server) sawState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateIdle:
		slotOf(c).Idle()
	case http.StateActive:
		slotOf(c).Busy()
	}
	secure, ok := c.(*tls.Conn)
	if !ok || state != http.StateClosed || secure.ConnectionState().HandshakeComplete {
		return
	}
	err := secure.HandshakeContext(s.ctx) // it is over: this is how it ended
	if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return // we have ended it
	}
	cause := wire.CauseTLSHandshake
	if certificate.Refused(err) {
		cause = wire.CauseBadCertificate
	}
	s.refuseConnection(c, cause, err)
}

// refuseConnection counts a connection that brought no request.
func (s *Server) refuseConnection(c net.Conn, cause wire.Cause, err error) {
	local, remote := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	source := netip.AddrPortFrom(remote.Addr().Unmap().WithZone(""), remote.Port())
	claim := intake.Claim{Protocol: wire.ProtocolHTTP, Port: local.Port(), Addr: source.Addr(), Encrypted: true}
	refusal := s.cfg.Registry.Current().Nearly(claim, cause)
	s.cfg.Registry.Refusals.Note(refusal, wire.ProtocolHTTP, claim.Port, claim.Addr, 1)
	s.cfg.Archive.Refused(wire.UnknownInstrument, cause)
	s.cfg.Refusals.SayNearly(wire.UnknownInstrument, refusal, source, claim.Port, err)
}
