// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	certificates "github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/wire"
)

// Claim is how a sender identifies itself.
type Claim struct {
	// Protocol is one of wire's.
	Protocol string
	// Port that it sends to, Addr where it sends from: behind an edge, as the
	// edge says.
	Port uint16
	Addr netip.Addr
	// Encrypted: what it sends comes over TLS.
	Encrypted bool
	// Certificate of the sender, which one of the pool's client authorities
	// signed; nil where it showed none.
	Certificate *x509.Certificate
	// Instrument that it names; empty where the protocol carries no name.
	Instrument string
	// Token that it shows; empty for none.
	Token string
}

// Refusal is why a sender may not send. Its zero value refuses nothing.
type Refusal struct {
	Cause wire.Cause
	// Instrument is the one that the sender nearly was; empty if it was near none.
	Instrument string
	// Shown is what it showed instead of what is declared; never a token.
	Shown string
}

// Name is the refused instrument's for metrics and logs.
func (r Refusal) Name() string {
	if r.Instrument == "" {
		return wire.UnknownInstrument
	}
	return r.Instrument
}

// Identify asks the snapshot in force, see Snapshot.Identify.
func (r *Registry) Identify(c Claim) (*Listener, Refusal) { return r.Current().Identify(c) }

// Identify returns the listener that a sender uses: one for which all that its Instrument
// declares holds. If there are several, the one with the longest prefix counts. Otherwise
// it returns why there is none.
func (s *Snapshot) Identify(c Claim) (*Listener, Refusal) {
	var refusal Refusal
	for listener := range s.claims[c.place()].candidates(c.Addr) {
		cause := listener.refuses(c)
		if cause == "" {
			return listener, Refusal{}
		}
		if refusal.Cause == "" {
			refusal = Refusal{Cause: cause, Instrument: listener.Instrument.Name}
		}
	}
	return nil, s.nearest(c, refusal)
}

// place is the one at which the claim is made.
func (c Claim) place() place {
	if c.Protocol == wire.ProtocolHTTP {
		return place{c.Protocol, c.Port, c.Instrument}
	}
	return place{protocol: c.Protocol, port: c.Port}
}

// TLS returns what a connection to a port of TCP begins with: wire.TLSServer,
// wire.TLSMutual, or "" for plain bytes. It is false for an unknown sender's.
func (s *Snapshot) TLS(port uint16, addr netip.Addr) (string, bool) {
	listener, ok := s.Lookup(wire.ProtocolTCP, port, addr)
	if !ok {
		return "", false
	}
	return listener.TLS, true
}

// PortTLS returns what a listener on a port of a protocol needs at most: wire.TLSMutual,
// wire.TLSServer, or "" if none is over TLS.
func (s *Snapshot) PortTLS(protocol string, port uint16) string {
	needs := ""
	for _, listener := range s.listeners {
		if listener.Protocol == protocol && listener.Port == port && (needs == "" || listener.TLS == wire.TLSMutual) {
			needs = listener.TLS
		}
	}
	return needs
}

// refuses returns what the sender lacks of what is declared beside the source, or "".
func (w *Listener) refuses(c Claim) wire.Cause {
	switch {
	case w.Instrument.Retired:
		return wire.CauseRetired
	case (w.TLS != "") != c.Encrypted:
		return wire.CauseTLSHandshake
	case w.TLS == wire.TLSMutual && (c.Certificate == nil || !w.bears(c.Certificate)):
		return wire.CauseBadCertificate
	case len(w.Tokens) > 0 && !w.takesToken(c.Token):
		return wire.CauseBadToken
	default:
		return ""
	}
}

// bears says whether a certificate has one of the declared names; any has where
// none is declared.
func (w *Listener) bears(cert *x509.Certificate) bool {
	return len(w.CertificateNames) == 0 || certificates.Bears(cert, w.CertificateNames)
}

// takesToken tries every token, so that its duration reveals nothing.
func (w *Listener) takesToken(token string) bool {
	taken := false
	for _, t := range w.Tokens {
		taken = t.Matches(token) || taken
	}
	return taken
}

// maxTries bounds the tokens that are tried to find out whose a wrong one is.
const maxTries = 64

// nearest completes a refusal with the instrument that the sender nearly was.
// Refusal says which listener refused the sender, and why; zero where none matched.
func (s *Snapshot) nearest(c Claim, refusal Refusal) Refusal {
	switch refusal.Cause {
	case "":
		return s.nearestOther(c)
	case wire.CauseBadCertificate:
		refusal.Shown = describe(c.Certificate)
		if o := s.ownerOf(c); o != nil {
			refusal.Instrument = o.Instrument.Name
		} else if s.severalFor(c) {
			refusal.Instrument = "" // it was as near to each of them
		}
	case wire.CauseBadToken:
		if o := s.ownerOf(c); o != nil {
			refusal.Instrument, refusal.Shown = o.Instrument.Name, "its token, for Instrument "+printable(c.Instrument)
		}
	}
	return refusal
}

// nearestOther is for a sender that no listener matches.
func (s *Snapshot) nearestOther(c Claim) Refusal {
	if c.Instrument == "" {
		return Refusal{Cause: wire.CauseUnknownSource, Instrument: s.neighbor(c)}
	}
	if in := s.instruments[c.Instrument]; in != nil {
		if s.claims[c.place()] != nil {
			return Refusal{Cause: wire.CauseUnknownSource, Instrument: in.Name}
		}
		return Refusal{Cause: wire.CauseUnknownInstrument, Instrument: in.Name, Shown: "its name, on another port"}
	}
	refusal := Refusal{Cause: wire.CauseUnknownInstrument}
	if o := s.ownerOf(c); o != nil {
		refusal.Instrument, refusal.Shown = o.Instrument.Name, "its own certificate or token, for Instrument "+printable(c.Instrument)
	}
	return refusal
}

// ownerOf returns a listener on the port whose certificate, or else whose token, the sender shows;
// nil if there is none.
func (s *Snapshot) ownerOf(c Claim) *Listener {
	tries := 0
	for _, w := range s.listeners {
		if w.Protocol != c.Protocol || w.Port != c.Port {
			continue
		}
		if c.Certificate != nil && len(w.CertificateNames) > 0 && w.bears(c.Certificate) {
			return w
		}
		if tries += len(w.Tokens); c.Token != "" && tries <= maxTries && w.takesToken(c.Token) {
			return w
		}
	}
	return nil
}

// severalFor says whether listeners of more than one instrument match the address.
func (s *Snapshot) severalFor(c Claim) bool {
	var first *Instrument
	for listener := range s.claims[c.place()].candidates(c.Addr) {
		if first != nil && listener.Instrument != first {
			return true
		}
		first = listener.Instrument
	}
	return false
}

// neighbor returns the instrument of the port with the source that has the most bits in common with
// the address; "" if there is none, or more than one.
func (s *Snapshot) neighbor(c Claim) string {
	name, most := "", -1
	addr := c.Addr.Unmap()
	for _, w := range s.listeners {
		if w.Protocol != c.Protocol || w.Port != c.Port {
			continue
		}
		common := 0
		for _, p := range w.Sources {
			common = max(common, commonBits(p.Addr(), addr))
		}
		switch {
		case common > most:
			name, most = w.Instrument.Name, common
		case common == most && w.Instrument.Name != name:
			name = ""
		}
	}
	return name
}

func commonBits(a, b netip.Addr) int {
	if a.BitLen() != b.BitLen() {
		return 0
	}
	n := 0
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		diff := x[i] ^ y[i]
		for bit := 7; bit >= 0; bit-- {
			if diff>>bit&1 == 1 {
				return n
			}
			n++
		}
	}
	return n
}

// describe names a certificate in few words.
func describe(cert *x509.Certificate) string {
	if cert == nil {
		return "no certificate"
	}
	names := slices.Clone(cert.DNSNames)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	if cn := cert.Subject.CommonName; cn != "" && !slices.Contains(names, cn) {
		names = append(names, cn)
	}
	const few = 3
	if len(names) == 0 {
		return "a certificate without a name"
	}
	return "a certificate for " + printable(strings.Join(names[:min(len(names), few)], ", "))
}

// printable makes text of a sender's fit for a log and an event.
func printable(s string) string {
	const longest = 200
	if len(s) > longest {
		s = s[:longest] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Leaf returns the sender's certificate, nil where it showed none that was verified.
func Leaf(state tls.ConnectionState) *x509.Certificate {
	if len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// Nearly is the refusal of a sender with whom no connection came about: near the
// one instrument whose listeners on the port take its address.
func (s *Snapshot) Nearly(c Claim, cause wire.Cause) Refusal {
	refusal := Refusal{Cause: cause}
	for _, listener := range s.listeners {
		switch {
		case listener.Protocol != c.Protocol || listener.Port != c.Port || !listener.takesFrom(c.Addr):
		case refusal.Instrument == "":
			refusal.Instrument = listener.Instrument.Name
		case refusal.Instrument != listener.Instrument.Name:
			return Refusal{Cause: cause}
		}
	}
	return refusal
}

func (w *Listener) takesFrom(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return len(w.Sources) == 0 || slices.ContainsFunc(w.Sources, func(p netip.Prefix) bool { return p.Contains(addr) })
}
