// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Names of files in Config.TLSDir.
const (
	fileCA          = "ca.crt"
	fileCertificate = "tls.crt"
	fileKey         = "tls.key"
)

const (
	// A peer that is gone without a word is noticed after pingInterval x (pingsOutstanding + 1).
	pingInterval     = 3 * time.Second
	pingsOutstanding = 2
	dialTimeout      = 3 * time.Second
	writeTimeout     = 10 * time.Second
	reconnectWait    = 250 * time.Millisecond
	reconnectJitter  = 250 * time.Millisecond
)

// Config says how to reach NATS.
type Config struct {
	// Servers are URLs: nats://host:4222 or tls://host:4222.
	Servers []string
	// CredentialsFile is a .creds file, read again for each connection. Credentials holds the bytes of one instead. Without either the
	// connection is anonymous.
	CredentialsFile string
	Credentials     []byte
	// TLSDir holds ca.crt, or for a client certificate tls.crt and tls.key, or all three, read again for each connection. TLS is used
	// instead where it is set. Without ca.crt servers with a tls:// URL are verified with the system's roots.
	TLSDir string
	TLS    *tls.Config
	// InboxPrefix is the first token of reply subjects, as the credentials allow it; default _INBOX.
	InboxPrefix string
	// Name of the connection, as the server's monitoring shows it.
	Name string
	// Logger hears of connections lost and won; default none.
	Logger *slog.Logger
}

// Connect returns a connection that keeps itself up without end. It returns after the first try, successful or not: if no server answers,
// it keeps trying in the background (see WaitConnected). Errors are those of the configuration, or ctx's. Messages that are published
// while no server answers are refused at once, never buffered.
func Connect(ctx context.Context, cfg Config) (*nats.Conn, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(cfg.urls(), opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("connect to NATS at %s: %w", strings.Join(cfg.Servers, ","), r.err)
		}
		return r.nc, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, fmt.Errorf("connect to NATS at %s: %w", strings.Join(cfg.Servers, ","), ctx.Err())
	}
}

// WaitConnected returns once the connection is up. Errors: ctx's with the last reason why it is not, and
// nats.ErrConnectionClosed.
func WaitConnected(ctx context.Context, nc *nats.Conn) error {
	changes := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changes)
	for {
		switch nc.Status() {
		case nats.CONNECTED:
			return nil
		case nats.CLOSED:
			return nats.ErrConnectionClosed
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("wait for NATS: %w (last error: %v)", ctx.Err(), nc.LastError())
		}
	}
}

func (c Config) options() ([]nats.Option, error) {
	if len(c.Servers) == 0 {
		return nil, errors.New("connect to NATS: no server is named")
	}
	opts := []nats.Option{
		nats.Name(c.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(), // credentials may be renewed meanwhile
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOutstanding),
		nats.Timeout(dialTimeout),
		nats.FlusherTimeout(writeTimeout),
	}
	local, err := c.localOption()
	if err != nil {
		return nil, err
	}
	if local != nil {
		opts = append(opts, local)
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	switch {
	case len(c.Credentials) > 0:
		opts = append(opts, nats.UserCredentialBytes(c.Credentials))
	case c.CredentialsFile != "":
		if _, err := os.Stat(c.CredentialsFile); err != nil {
			return nil, fmt.Errorf("connect to NATS: credentials: %w", err)
		}
		opts = append(opts, nats.UserCredentials(c.CredentialsFile))
	}
	return append(append(opts, c.tlsOptions()...), c.logOptions()...), nil
}

func (c Config) tlsOptions() []nats.Option {
	if c.TLS != nil {
		return []nats.Option{nats.Secure(c.TLS)}
	}
	if c.TLSDir == "" {
		return nil
	}
	ca := filepath.Join(c.TLSDir, fileCA)
	roots := func() (*x509.CertPool, error) { return readRoots(ca) }
	var certificate nats.TLSCertHandler // without one the server alone proves who it is
	crt, key := filepath.Join(c.TLSDir, fileCertificate), filepath.Join(c.TLSDir, fileKey)
	if _, err := os.Stat(crt); err == nil {
		if _, err := os.Stat(ca); errors.Is(err, fs.ErrNotExist) {
			roots = nil
		}
		certificate = func() (tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(crt, key)
			if err != nil {
				return tls.Certificate{}, fmt.Errorf("client certificate in %s: %w", c.TLSDir, err)
			}
			return pair, nil
		}
	}
	return []nats.Option{nats.ClientTLSConfig(certificate, roots)}
}

func readRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return pool, nil
}

func (c Config) logOptions() []nats.Option {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS", "server", nc.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("reconnected to NATS", "server", nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if nc.IsClosed() {
				return // by us
			}
			log.Warn("lost the connection to NATS; retrying its servers", "error", err)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { log.Debug("NATS does not answer", "error", err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Error("NATS reported an error", "subject", subject, "error", err)
		}),
	}
}
