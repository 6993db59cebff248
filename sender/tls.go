// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
)

// socket is a connection to a server: TCP, or TLS on it. Close resets what is
// not finished: it never ends an object.
type socket interface {
	net.Conn
	// CloseWrite ends the object of until-close: by FIN, or by close_notify.
	CloseWrite() error
	// finish makes the Close that follows a clean one.
	finish()
	vitals() *vitals
}

// plain is TCP, whose linger is {1,0} until finish.
type plain struct {
	*net.TCPConn
	activity *vitals
}

func (p plain) vitals() *vitals { return p.activity }

func (p plain) finish() { _ = p.SetLinger(-1) }

// secure is TLS on it.
type secure struct {
	*tls.Conn
	tcp      *net.TCPConn
	activity *vitals
}

func (s secure) vitals() *vitals { return s.activity }

// Close sends no close_notify, which would be an object's end.
func (s secure) Close() error { return s.tcp.Close() }

func (s secure) finish() {
	_ = s.CloseWrite()
	_ = s.tcp.SetLinger(-1)
}

// shake performs the TLS handshake on a connection if the sender uses TLS.
func (s *sender) shake(ctx context.Context, tcp *net.TCPConn, address string) (socket, error) {
	if s.tls == nil {
		return plain{tcp, newVitals(tcp)}, nil
	}
	if s.dialer.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.dialer.Timeout)
		defer cancel()
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	secured, err := handshake(ctx, tcp, host, s.tls)
	if err != nil {
		return nil, err
	}
	return secure{secured, tcp, newVitals(tcp)}, nil
}

// handshake makes TLS of a connection to a host, as the files of the flags have it now.
func handshake(ctx context.Context, conn net.Conn, host string, config TLSConfig) (*tls.Conn, error) {
	cfg, err := config()
	if err != nil {
		return nil, err
	}
	cfg.ServerName = host
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secured, nil
}

// TLSConfig returns the configuration of one connection. It is asked for each, so that renewed authorities and certificates need no
// restart.
type TLSConfig func() (*tls.Config, error)

// tlsFlags are what --tls… say.
type tlsFlags struct {
	on            bool
	ca, cert, key string
	system        authorities
}

func (f *tlsFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.on, "tls", false, "send over TLS, to servers whose certificate the system's authorities signed; on Linux their files are read again when they change")
	flags.StringVar(&f.ca, "tls-ca", "", "send over TLS, to servers whose certificate the authorities of this file (PEM) signed; it is read for each connection, so renewed ones need no restart")
	flags.StringVar(&f.cert, "tls-cert", "", "file (PEM) with the certificate to show; it is read for each connection, so a renewed one needs no restart")
	flags.StringVar(&f.key, "tls-key", "", "file (PEM) with the key of --tls-cert")
}

// config returns nil if TLS is not configured.
func (f *tlsFlags) config() (TLSConfig, error) {
	if !f.on && f.ca == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usage.Errorf("--tls-cert and --tls-key belong together")
	}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f.read, nil
}

// read is the configuration as the files have it now.
func (f *tlsFlags) read() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca == "" {
		cfg.RootCAs = f.system.read()
	} else {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s holds no certificate in PEM", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		// Shown whatever authorities the server names: why it is refused, the server says best.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg, nil
}
