// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// TestRenewedAuthorities: --tls-ca, as the certificate, is what the file holds when a connection is made, over TCP and over HTTP. So are the
// authorities of the system.
func TestRenewedAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	t.Run("of a file", func(t *testing.T) {
		testRenewedAuthorities(t, file, &tlsFlags{ca: file}, "holds no certificate in PEM")
	})
	t.Setenv("SSL_CERT_FILE", file)
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	t.Run("of the system", func(t *testing.T) { testRenewedAuthorities(t, file, &tlsFlags{on: true}, "x509") })
}

func testRenewedAuthorities(t *testing.T, file string, flags *tlsFlags, half string) {
	first, second := testenv.NewCA(t), testenv.NewCA(t)
	dir := first.Dir(t, "gateway")
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		return &pair, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.(*tls.Conn).Handshake()
				_, _ = conn.Read(make([]byte, 1)) // until the other side has seen it
			}()
		}
	}()
	trust := func(ca *testenv.CA) { // as update-ca-certificates does
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", ca.PEM, 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	trust(first)
	config, err := flags.config()
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{dialer: net.Dialer{Timeout: 20 * time.Second}, tls: config, receiptTimeout: 20 * time.Second, sent: func(int64) {}, lost: func(int64) {}}
	w := newWeb(HTTPConfig{NameFrom: NameFromPath}, s)
	defer w.close()
	address := listener.Addr().String()
	ways := map[string]func(context.Context) (net.Conn, error){
		"tcp":  func(ctx context.Context) (net.Conn, error) { return s.dial(ctx, address, 0) },
		"http": func(ctx context.Context) (net.Conn, error) { return w.dialTLS(ctx, "tcp", address) },
	}
	connects := func(when, refused string) {
		t.Helper()
		for name, connect := range ways {
			conn, err := connect(t.Context())
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
				t.Errorf("%s, over %s: %v", when, name, err)
			}
		}
	}
	connects("at first", "")
	dir = second.Dir(t, "gateway")
	connects("with a server of another authority", "unknown authority")
	trust(second)
	connects("with the renewed authority", "")
	if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	connects("with a file that is half written", half)
	trust(second)
	connects("with the whole file", "")
}
