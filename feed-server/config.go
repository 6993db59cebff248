// SPDX-License-Identifier: Apache-2.0

// Package feedserver is the way out to people, live: it follows a Site's streams
// and gives each consumer what its Feed and its flow control say. README.md shows
// the rooms.
package feedserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/substorm/substorm/internal/stream"
)

// Config is what a feed-server pod is told.
type Config struct {
	// Site is the Site's code, Pod the pod's name.
	Site, Pod string
	// Listen is where consumers connect, ListenHTTP serves /healthz, /readyz and
	// /metrics.
	Listen, ListenHTTP string
	// TLSDir has the certificate that consumers see (tls.crt, tls.key); empty: bytes
	// are plain. ClientCADir has ca.crt: the authorities of readers' certificates; empty
	// where readers show tokens alone.
	TLSDir, ClientCADir string

	NATS stream.Config

	// RingSize is how much of the streams' ends is held in memory, of all together, in
	// bytes; 0: what the memory limit lets.
	RingSize int64
	// MaxConnections bounds those of all FeedConsumers together; 0: by the memory limit,
	// where there is one.
	MaxConnections int
	// Readers bound how many consumers read the streams behind that at a time.
	Readers int
	// DrainTimeout is how long clients may take to go when the pod stops.
	DrainTimeout time.Duration

	// LogLevel is debug, info, warn or error; Log gets the lines.
	LogLevel string
	Log      io.Writer
}

// minRing holds a few of the largest messages.
const minRing = 1 << 20

// check fills in what may be left out and returns what is missing or wrong, all
// of it.
func (c *Config) check() error {
	var errs []error
	if c.Log == nil {
		c.Log = os.Stderr
	}
	for _, needed := range []struct{ flag, value string }{{"--site", c.Site}, {"--pod", c.Pod}, {"--listen", c.Listen}, {"--listen-http", c.ListenHTTP}} {
		if needed.value == "" {
			errs = append(errs, fmt.Errorf("%s is not set", needed.flag))
		}
	}
	if len(c.NATS.Servers) == 0 {
		errs = append(errs, errors.New("--nats-servers is not set"))
	}
	if c.ClientCADir != "" && c.TLSDir == "" {
		errs = append(errs, errors.New("--client-ca-dir needs --tls-dir: certificates are shown over TLS alone"))
	}
	if c.MaxConnections < 0 {
		errs = append(errs, errors.New("--max-connections must not be negative"))
	}
	if c.RingSize != 0 && c.RingSize < minRing {
		errs = append(errs, fmt.Errorf("--ring-size %d: at least %d bytes are needed", c.RingSize, minRing))
	}
	if c.Readers < 1 || c.DrainTimeout <= 0 {
		errs = append(errs, errors.New("--readers and --drain-timeout must be positive"))
	}
	return errors.Join(errs...)
}
