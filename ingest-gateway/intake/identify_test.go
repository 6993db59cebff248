// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// over makes the listeners of an entry listeners over TLS.
func over(e wire.InstrumentEntry, tls string, names ...string) wire.InstrumentEntry {
	for i := range e.Listeners {
		e.Listeners[i].TLS, e.Listeners[i].CertificateNames = tls, names
	}
	return e
}

func certificate(cn string, sans ...string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: cn}}
	for _, san := range sans {
		if u, err := url.Parse(san); err == nil && u.Scheme != "" {
			c.URIs = append(c.URIs, u)
		} else {
			c.DNSNames = append(c.DNSNames, san)
		}
	}
	return c
}

func TestIdentify(t *testing.T) {
	retired := entry("old", 1, "TCP 30104")
	retired.Retired = true
	s := resolved(bucketOf(t, 1, 9,
		entry("plain", 1, "TCP 30100 10.0.0.0/8"),
		entry("neighbor", 1, "TCP 30100 192.0.2.0/24"),
		over(entry("server", 1, "TCP 30101"), wire.TLSServer),
		over(entry("camera", 1, "TCP 30102"), wire.TLSMutual, "camera.example", "spiffe://field/camera"),
		over(entry("radar", 1, "TCP 30102"), wire.TLSMutual, "radar.example"),
		over(entry("both", 1, "TCP 30102 10.0.0.0/8"), wire.TLSMutual, "both.example"),
		over(entry("anybody", 1, "TCP 30103"), wire.TLSMutual),
		retired,
		entry("alone", 1, "TCP 30105 10.0.0.0/8"),
	))
	if len(s.Problems) != 0 {
		t.Fatal(s.Problems)
	}
	for name, test := range map[string]struct {
		port      uint16
		addr      string
		encrypted bool
		cert      *x509.Certificate
		want      string // the instrument
		refusal   Refusal
	}{
		"its source":                           {port: 30100, addr: "10.1.2.3", want: "plain"},
		"its source, as IPv6 writes it":        {port: 30100, addr: "::ffff:10.1.2.3", want: "plain"},
		"nearer to one source than another":    {port: 30100, addr: "192.0.3.1", refusal: Refusal{Cause: wire.CauseUnknownSource, Instrument: "neighbor"}},
		"near to none":                         {port: 30100, addr: "2001:db8::1", refusal: Refusal{Cause: wire.CauseUnknownSource}},
		"near to the only one":                 {port: 30105, addr: "2001:db8::1", refusal: Refusal{Cause: wire.CauseUnknownSource, Instrument: "alone"}},
		"a port of nobody":                     {port: 30150, addr: "10.1.2.3", refusal: Refusal{Cause: wire.CauseUnknownSource}},
		"TLS where it must be":                 {port: 30101, addr: "10.1.2.3", encrypted: true, want: "server"},
		"plain where TLS must be":              {port: 30101, addr: "10.1.2.3", refusal: Refusal{Cause: wire.CauseTLSHandshake, Instrument: "server"}},
		"TLS where it must not be":             {port: 30100, addr: "10.1.2.3", encrypted: true, refusal: Refusal{Cause: wire.CauseTLSHandshake, Instrument: "plain"}},
		"a certificate's DNS name":             {port: 30102, addr: "192.0.2.1", encrypted: true, cert: certificate("", "CAMERA.example"), want: "camera"},
		"a certificate's URI":                  {port: 30102, addr: "192.0.2.1", encrypted: true, cert: certificate("", "spiffe://field/camera"), want: "camera"},
		"a certificate's common name":          {port: 30102, addr: "192.0.2.1", encrypted: true, cert: certificate("radar.example"), want: "radar"},
		"a certificate and a source":           {port: 30102, addr: "10.0.0.1", encrypted: true, cert: certificate("both.example"), want: "both"},
		"a certificate with a narrower one":    {port: 30102, addr: "10.0.0.1", encrypted: true, cert: certificate("radar.example"), want: "radar"},
		"a certificate from elsewhere":         {port: 30102, addr: "192.0.2.1", encrypted: true, cert: certificate("both.example"), refusal: Refusal{Cause: wire.CauseBadCertificate, Instrument: "both", Shown: "a certificate for both.example"}},
		"a wildcard is no name":                {port: 30102, addr: "192.0.2.1", encrypted: true, cert: certificate("", "*.example"), refusal: Refusal{Cause: wire.CauseBadCertificate, Shown: "a certificate for *.example"}},
		"no certificate":                       {port: 30103, addr: "192.0.2.1", encrypted: true, refusal: Refusal{Cause: wire.CauseBadCertificate, Instrument: "anybody", Shown: "no certificate"}},
		"any certificate":                      {port: 30103, addr: "192.0.2.1", encrypted: true, cert: certificate("whoever"), want: "anybody"},
		"a retired instrument":                 {port: 30104, addr: "192.0.2.1", refusal: Refusal{Cause: wire.CauseRetired, Instrument: "old"}},
		"a name that would break a log's line": {port: 30102, addr: "192.0.2.1", encrypted: true, cert: certificate("a\nb\x1b[0m"), refusal: Refusal{Cause: wire.CauseBadCertificate, Shown: "a certificate for a?b?[0m"}},
	} {
		t.Run(name, func(t *testing.T) {
			listener, refusal := s.Identify(Claim{Protocol: wire.ProtocolTCP, Port: test.port, Addr: netip.MustParseAddr(test.addr), Encrypted: test.encrypted, Certificate: test.cert})
			got := ""
			if listener != nil {
				got = listener.Instrument.Name
			}
			if got != test.want || refusal != test.refusal {
				t.Errorf("got %q, %+v; want %q, %+v", got, refusal, test.want, test.refusal)
			}
		})
	}
}

// TestCertificatesConflict: only where all names differ do two instruments share an address.
func TestCertificatesConflict(t *testing.T) {
	s := resolved(bucketOf(t, 3, 3,
		over(entry("a", 1, "TCP 30100"), wire.TLSMutual, "a", "b"),
		over(entry("b", 2, "TCP 30100"), wire.TLSMutual, "b", "c"),
		over(entry("c", 3, "TCP 30100"), wire.TLSMutual),
	))
	if len(s.Problems) != 2 || s.Problems["b"] == "" || s.Problems["c"] == "" {
		t.Errorf("problems: %v", s.Problems)
	}
	if listener, _ := s.Identify(Claim{Protocol: wire.ProtocolTCP, Port: 30100, Addr: netip.MustParseAddr("::1"), Encrypted: true, Certificate: certificate("c")}); listener != nil {
		t.Errorf("%s takes a certificate for c", listener.Instrument.Name)
	}
}

// TestUnknownIdentityIsRefused: what this gateway cannot read is not taken for a listener that asks for nothing.
func TestUnknownIdentityIsRefused(t *testing.T) {
	for name, change := range map[string]func(*wire.ListenerEntry){
		"tls":          func(w *wire.ListenerEntry) { w.TLS = "Quantum" },
		"names":        func(w *wire.ListenerEntry) { w.CertificateNames = []string{"a"} },
		"tokens":       func(w *wire.ListenerEntry) { w.Tokens = []wire.TokenHash{wire.HashToken(nil, "t")} },
		"tls over UDP": func(w *wire.ListenerEntry) { *w = listener("UDP 30100"); w.TLS = wire.TLSServer },
	} {
		e := entry("a", 1, "TCP 30100")
		change(&e.Listeners[0])
		if in, err := NewInstrument(e); err == nil {
			t.Errorf("%s: %+v was read as %+v", name, e.Listeners[0], in.Listeners[0])
		}
	}
}

func TestRefusals(t *testing.T) {
	var r Refusals
	near := Refusal{Cause: wire.CauseBadCertificate, Instrument: "a", Shown: "x"}
	r.Note(near, wire.ProtocolTCP, 30100, netip.MustParseAddr("::ffff:192.0.2.1"), 1)
	r.Note(near, wire.ProtocolTCP, 30100, netip.MustParseAddr("192.0.2.2"), 2)
	r.Note(Refusal{Cause: wire.CauseUnknownSource}, wire.ProtocolTCP, 30100, netip.MustParseAddr("192.0.2.3"), 1)
	got := r.Changed()
	seen := got["a"][wire.CauseBadCertificate]
	if time.Since(seen.At) > time.Minute {
		t.Errorf("at %v", seen.At)
	}
	seen.At = time.Time{}
	if diff := cmp.Diff(wire.Refused{Count: 3, Source: "192.0.2.2", Protocol: wire.ProtocolTCP, Port: 30100, Shown: "x"}, seen); diff != "" || len(got) != 1 {
		t.Errorf("%d instruments, %s", len(got), diff)
	}
	if again := r.Changed(); len(again) != 0 {
		t.Errorf("told twice: %v", again)
	}
	r.Again("a")
	if again := r.Changed(); again["a"][wire.CauseBadCertificate].Count != 3 {
		t.Errorf("not told again: %v", again)
	}
}

func TestLimit(t *testing.T) {
	var none *Limit
	if d := none.Read(1 << 30); d != 0 || none.Chunk() < 1<<30 || !none.TakeDatagram(1<<16, time.Now()) {
		t.Error("no limit limits")
	}
	l := newLimit(1000, 2)
	if l.Chunk() != minBurst {
		t.Errorf("chunk %d", l.Chunk())
	}
	if d := l.Read(minBurst); d != 0 {
		t.Errorf("the first burst waits %v", d)
	}
	if d := l.Read(1000); d <= 0 || d > time.Second {
		t.Errorf("1000 bytes beyond it wait %v", d)
	}
	for i := range 3 {
		if wait, ok := l.TakeObject(); ok != (i < 2) || !ok && (wait <= 0 || wait > 500*time.Millisecond) {
			t.Errorf("object %d: %v, %v", i, wait, ok)
		}
	}
	d := newLimit(1000, 0)
	now := time.Now()
	if !d.TakeDatagram(minBurst, now) || d.TakeDatagram(100, now) || !d.TakeDatagram(100, now.Add(200*time.Millisecond)) {
		t.Error("datagrams are not limited by bytes")
	}
}
