// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// tlsLab is a Site whose pool has a certificate and takes those of an authority.
type tlsLab struct {
	*lab
	server, field *testenv.CA
	dir           string
	gateway       *gateway
}

func newTLSLab(t *testing.T, flags ...string) *tlsLab {
	l := &tlsLab{lab: newLab(t), server: testenv.NewCA(t), field: testenv.NewCA(t)}
	l.dir = l.server.Dir(t, "gateway")
	l.gateway = l.start(t, gatewayOptions{flags: append([]string{"--tls-dir", l.dir, "--client-ca-dir", l.field.Dir(t, "unused")}, flags...)})
	return l
}

// client trusts the pool; with a name it shows a certificate of an authority.
func (l *tlsLab) client(t *testing.T, by *testenv.CA, name string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	cfg.RootCAs.AppendCertsFromPEM(l.server.PEM)
	if name != "" {
		certificate, key := by.Issue(t, name)
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		// The server's list of authorities is no reason to show nothing.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg
}

// witness is a socket that knows whether its end was read.
type witness struct {
	*net.TCPConn
	ended atomic.Bool
}

func (w *witness) Read(b []byte) (int, error) {
	n, err := w.TCPConn.Read(b)
	if errors.Is(err, io.EOF) {
		w.ended.Store(true)
	}
	return n, err
}

// tlsDial shakes hands with the first write.
func tlsDial(t *testing.T, port int, cfg *tls.Config) (*tls.Conn, *witness) {
	t.Helper()
	under := &witness{TCPConn: dial(t, port)}
	t.Cleanup(func() { under.TCPConn.Close() })
	return tls.Client(under, cfg), under
}

// tlsSend sends an object, ends with close_notify, and reads the answer. In TLS 1.3 a client learns
// that its certificate is refused with its first read.
func tlsSend(t *testing.T, port int, cfg *tls.Config, object []byte) (answer, *witness) {
	t.Helper()
	conn, under := tlsDial(t, port, cfg)
	if _, err := conn.Write(object); err != nil {
		return answer{err: err}, under
	}
	if err := conn.CloseWrite(); err != nil {
		return answer{err: err}, under
	}
	return hear(conn), under
}

func tlsListener(e wire.InstrumentEntry, mode string, names ...string) wire.InstrumentEntry {
	e.Listeners[0].TLS, e.Listeners[0].CertificateNames = mode, names
	return e
}

func TestTLS(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	g := l.gateway
	open, shared, whoever := testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)
	l.awaitRevision(t, g.name, l.declare(t,
		tlsListener(tcpInstrument("open", open), wire.TLSServer),
		tlsListener(tcpInstrument("camera", shared), wire.TLSMutual, "camera.example"),
		tlsListener(tcpInstrument("radar", shared), wire.TLSMutual, "radar.example"),
		tlsListener(tcpInstrument("anybody", whoever), wire.TLSMutual),
	))
	stored := func(t *testing.T, instrument string, port int, cfg *tls.Config, object []byte) {
		t.Helper()
		a, under := tlsSend(t, port, cfg, object)
		if got := a.receipt(t); got != receiptOf(object) {
			t.Fatalf("receipt %+v", got)
		}
		if under.ended.Load() {
			t.Error("the connection ended without close_notify")
		}
		l.awaitLedger(t, instrument, wire.StepStored, func(s wire.Totals) bool { return s.Objects >= 1 && s.ObjectBytes >= uint64(len(object)) })
	}

	t.Run("the pool's certificate", func(t *testing.T) {
		stored(t, "open", open, l.client(t, nil, ""), random(1, 700_001))
	})
	t.Run("a large object", func(t *testing.T) {
		stored(t, "open", open, l.client(t, nil, ""), random(2, 40<<20))
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		cfg := l.client(t, nil, "")
		cfg.MaxVersion = tls.VersionTLS12
		stored(t, "open", open, cfg, random(3, 100_000))
	})
	t.Run("certificates tell instruments apart", func(t *testing.T) {
		stored(t, "camera", shared, l.client(t, l.field, "camera.example"), random(4, 10_000))
		stored(t, "radar", shared, l.client(t, l.field, "radar.example"), random(5, 20_000))
		stored(t, "anybody", whoever, l.client(t, l.field, "whoever"), random(6, 1000))
	})
	t.Run("a certificate with another name", func(t *testing.T) {
		a, _ := tlsSend(t, shared, l.client(t, l.field, "other.example"), random(7, 1000))
		if got := a.receipt(t); got != (wire.Receipt{Refused: wire.CauseBadCertificate}) {
			t.Errorf("receipt %+v", got)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			cfg := l.client(t, nil, "")
			cfg.MaxVersion = version
			if a, _ := tlsSend(t, whoever, cfg, random(8, 1000)); a.err == nil || !strings.Contains(a.err.Error(), "certificate") {
				t.Errorf("TLS %x: %q, %v; want an alert about the certificate", version, a.line, a.err)
			}
		}
		l.awaitRefusal(t, g, "anybody", wire.CauseBadCertificate, 2)
	})
	t.Run("another authority's certificate", func(t *testing.T) {
		if a, _ := tlsSend(t, whoever, l.client(t, testenv.NewCA(t), "whoever"), random(9, 1000)); a.err == nil || !strings.Contains(a.err.Error(), "certificate") {
			t.Errorf("%q, %v", a.line, a.err)
		}
		l.awaitRefusal(t, g, "anybody", wire.CauseBadCertificate, 3)
	})
	t.Run("no TLS", func(t *testing.T) {
		if a := send(t, open, random(10, 1000)); strings.HasPrefix(a.line, "stored") {
			t.Errorf("plain bytes were taken: %q", a.line)
		}
		l.awaitRefusal(t, g, "open", wire.CauseTLSHandshake, 1)
	})
	t.Run("an end that anyone could forge", func(t *testing.T) {
		conn, under := tlsDial(t, open, l.client(t, nil, ""))
		if _, err := conn.Write(random(11, 50_000)); err != nil {
			t.Fatal(err)
		}
		if err := under.CloseWrite(); err != nil { // FIN without close_notify
			t.Fatal(err)
		}
		if a := hear(conn); strings.HasPrefix(a.line, "stored") {
			t.Errorf("half an object was receipted: %q", a.line)
		}
		l.awaitLedger(t, "open", wire.StepReceived, func(s wire.Totals) bool { return s.Unfinished[wire.CauseTruncated] == 1 })
	})
	if n := len(l.keys(t, wire.InstrumentPrefix(l.site, "open"))); n != 3 {
		t.Errorf("the archive holds %d objects of open", n)
	}
}

// awaitRefusal waits until refusals near an instrument are reported to the Site.
func (l *lab) awaitRefusal(t *testing.T, g *gateway, instrument string, cause wire.Cause, count uint64) wire.Refused {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	var seen wire.Refused
	await(t, fmt.Sprintf("%d refusals of %s near %s", count, cause, instrument), func() (bool, string) {
		e, err := kv.Get(t.Context(), wire.RefusalStatusKey(instrument, g.name))
		if err != nil {
			return false, err.Error()
		}
		s, err := wire.Decode[wire.RefusalStatus](e.Value())
		seen = s.Refused[cause]
		return err == nil && seen.Count == count, fmt.Sprintf("%+v, %v", s, err)
	})
	return seen
}

// Every framing carries many objects over one connection with TLS, as without.
func TestTLSFramings(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	ports := map[string]int{}
	var entries []wire.InstrumentEntry
	for _, framing := range []string{wire.FramingLines, wire.FramingLengthPrefixed, wire.FramingIdle} {
		ports[framing] = testenv.FreePort(t)
		entries = append(entries, tlsListener(framed(strings.ToLower(framing), ports[framing], framing), wire.TLSMutual, "it"))
	}
	l.awaitRevision(t, l.gateway.name, l.declare(t, entries...))
	cfg := l.client(t, l.field, "it")
	expect := func(t *testing.T, in *bufio.Reader, objects ...[]byte) {
		t.Helper()
		for i, o := range objects {
			text, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("object %d: %v", i, err)
			}
			if got, err := wire.ParseReceipt(text); err != nil || got != receiptOf(o) {
				t.Fatalf("object %d: receipt %+v, %v", i, got, err)
			}
		}
	}
	ended := func(t *testing.T, conn *tls.Conn, under *witness, in *bufio.Reader) {
		t.Helper()
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(in); err != nil || len(b) != 0 || under.ended.Load() {
			t.Errorf("at the end: %q, %v, TCP ended first: %v", b, err, under.ended.Load())
		}
	}
	t.Run(wire.FramingLengthPrefixed, func(t *testing.T) {
		conn, under := tlsDial(t, ports[wire.FramingLengthPrefixed], cfg)
		in := bufio.NewReader(conn)
		objects := [][]byte{random(1, 1), random(2, 300_000), random(3, 16_384), random(4, 17), random(5, 3<<20)}
		go func() { _, _ = conn.Write(prefixed(objects...)) }()
		expect(t, in, objects...)
		ended(t, conn, under, in)
	})
	t.Run(wire.FramingLines, func(t *testing.T) {
		conn, under := tlsDial(t, ports[wire.FramingLines], cfg)
		in := bufio.NewReader(conn)
		var objects [][]byte
		for i := range 100 {
			objects = append(objects, []byte(fmt.Sprint(i, strings.Repeat("x", i*i))))
		}
		go func() {
			for _, o := range objects { // in two records, cut anywhere
				_, _ = conn.Write(o[:len(o)/2])
				_, _ = conn.Write(append(o[len(o)/2:len(o):len(o)], '\n'))
			}
		}()
		expect(t, in, objects...)
		ended(t, conn, under, in)
	})
	t.Run(wire.FramingIdle, func(t *testing.T) {
		conn, under := tlsDial(t, ports[wire.FramingIdle], cfg)
		in := bufio.NewReader(conn)
		for i := range 3 {
			o := random(uint64(20+i), 40_000+i)
			if _, err := conn.Write(o); err != nil {
				t.Fatal(err)
			}
			expect(t, in, o)
		}
		ended(t, conn, under, in)
	})
}

// A renewed certificate is shown to new connections; those that are open continue, and one that
// cannot be read changes nothing.
func TestTLSRenewed(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	port := testenv.FreePort(t)
	l.awaitRevision(t, l.gateway.name, l.declare(t, tlsListener(framed("camera", port, wire.FramingLengthPrefixed), wire.TLSServer)))
	before, _ := tlsDial(t, port, l.client(t, nil, ""))
	seed := uint64(0)
	talk := func(conn *tls.Conn) string {
		t.Helper()
		seed++
		o := random(seed, 5000)
		if _, err := conn.Write(prefixed(o)); err != nil {
			t.Fatal(err)
		}
		text, err := bufio.NewReader(conn).ReadString('\n')
		if got, parseErr := wire.ParseReceipt(text); err != nil || parseErr != nil || got != receiptOf(o) {
			t.Fatalf("receipt %+v, %v, %v", got, err, parseErr)
		}
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if cn := talk(before); cn != "gateway" {
		t.Fatalf("the certificate is %s's", cn)
	}
	replaceFile(t, filepath.Join(l.dir, "tls.crt"), []byte("half of it"))
	await(t, "the gateway says that it cannot use the new one", func() (bool, string) {
		return strings.Contains(l.gateway.readLog(), "cannot use the renewed certificate; the previous one stays"), ""
	})
	fresh, _ := tlsDial(t, port, l.client(t, nil, ""))
	if cn := talk(fresh); cn != "gateway" {
		t.Fatalf("the certificate is %s's", cn)
	}
	certificate, key := l.server.Issue(t, "renewed")
	replaceFile(t, filepath.Join(l.dir, "tls.key"), key)
	replaceFile(t, filepath.Join(l.dir, "tls.crt"), certificate)
	await(t, "new connections see the renewed certificate", func() (bool, string) {
		conn, under := tlsDial(t, port, l.client(t, nil, ""))
		defer under.Close()
		cn := talk(conn)
		return cn == "renewed", cn
	})
	if cn := talk(before); cn != "gateway" {
		t.Errorf("the open connection is with %s", cn)
	}
}

func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A sender whose certificate is declared no more sends no further object, and a
// gateway that is killed ends no connection cleanly.
func TestTLSEndsAreNoReceipts(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	port := testenv.FreePort(t)
	e := tlsListener(framed("camera", port, wire.FramingLengthPrefixed), wire.TLSMutual, "it")
	l.awaitRevision(t, l.gateway.name, l.declare(t, e))
	conn, _ := tlsDial(t, port, l.client(t, l.field, "it"))
	in := bufio.NewReader(conn)
	first := random(1, 1000)
	if _, err := conn.Write(prefixed(first)); err != nil {
		t.Fatal(err)
	}
	if text, err := in.ReadString('\n'); err != nil || text != receiptOf(first).Line() {
		t.Fatalf("%q, %v", text, err)
	}
	e.Generation, e.Listeners[0].CertificateNames = 2, []string{"another"}
	l.awaitRevision(t, l.gateway.name, l.declare(t, e))
	_, _ = conn.Write(prefixed(random(2, 1000)))
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if text, err := in.ReadString('\n'); strings.HasPrefix(text, "stored") || err == nil {
		t.Errorf("after its certificate was taken away: %q, %v", text, err)
	}

	doomed, under := tlsDial(t, port, l.client(t, l.field, "another"))
	if _, err := doomed.Write(prefixed(random(3, 1000))[:900]); err != nil {
		t.Fatal(err)
	}
	await(t, "the connection is open", func() (bool, string) {
		v := l.gateway.metric(`substorm_gateway_connections{instrument="camera"}`)
		return v == "1", v
	})
	l.gateway.kill()
	if a := hear(doomed); !isReset(a.err) || under.ended.Load() {
		t.Errorf("after a kill: %q, %v", a.line, a.err)
	}
}
