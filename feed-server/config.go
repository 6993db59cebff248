// SPDX-License-Identifier: Apache-2.0

// Package feedserver is the read path: it follows a Site's streams and gives
// each consumer what its Feed and its flow control say, and it serves the archive.
// README.md shows the parts.
package feedserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
)

// Config is the configuration of a feed-server pod.
type Config struct {
	// Site is the Site's code, Pod the pod's name, and FeedServer the resource that the pod
	// belongs to; empty outside Kubernetes.
	Site, Pod, FeedServer string
	// Listen is where consumers connect, ListenHTTP serves /healthz, /readyz and
	// /metrics.
	Listen, ListenHTTP string
	// TLSDir has the certificate that consumers see (tls.crt, tls.key); empty: bytes
	// are plain. ClientCADir has ca.crt: the authorities of readers' certificates; empty
	// where readers show tokens alone.
	TLSDir, ClientCADir string

	NATS stream.Config
	// Objects is the archive's bucket, which is only read; without an endpoint live Feeds
	// alone are served.
	Objects objectstore.Config
	// BaseURL is the archive's public address, https://archive.example.org; empty: the address of
	// each request.
	BaseURL string
	// NotificationURL is the address at which WIS2 notifications name objects: any feed
	// server of a Site may be the one that notifies a consumer. Empty: BaseURL.
	NotificationURL string
	// Proxies whose word about a client's address is taken, as CIDRs.
	Proxies []string

	// RsyncAddress is where rsync finds what everybody may read of the archive (host:port);
	// empty: nowhere. RsyncWindow is how far back that reaches, and RsyncMaxTransfers bounds
	// the transfers of all clients together, 0: the memory does.
	RsyncAddress      string
	RsyncWindow       time.Duration
	RsyncMaxTransfers int
	// rsyncSize is how much transfers may take, in bytes: a part of ArchiveSize.
	rsyncSize int64

	// Limits on what one client may ask of the archive.
	Limits endpoint.Limits

	// RingSize is how much of the streams' ends is held in memory, of all together, in
	// bytes; 0: what the memory limit lets.
	RingSize int64
	// ArchiveSize is how much objects and manifests that are asked for often may take, in
	// bytes; 0: what the memory limit lets.
	ArchiveSize int64
	// MaxConnections bounds live connections and event streams together, and MaxSockets
	// connections of TCP; 0: by the memory limit.
	MaxConnections, MaxSockets int
	// GiveWay has robots give way to bulk readers, and these to people, while the CPU limit or the memory for requests is used up.
	GiveWay bool
	// AccessLog is where who read what is Restricted or under embargo is logged: off (or
	// empty), stdout, or a file to which lines are added.
	AccessLog string
	// Readers bound how many consumers read the streams behind that at a time.
	Readers int
	// DrainTimeout is how long clients may take to go when the pod stops.
	DrainTimeout time.Duration

	// LogLevel is debug, info, warn or error; Log gets the lines.
	LogLevel string
	Log      io.Writer
}

const (
	// minRing holds a few of the largest messages.
	minRing = 1 << 20
	// minArchive holds the largest object that is kept in memory, and a day's manifest.
	minArchive = 16 << 20
)

// check fills in what may be left out and returns what is missing or wrong, all
// of it.
func (c *Config) check() error {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	errs := []error{flags.Required("--site", c.Site, "--pod", c.Pod, "--listen", c.Listen, "--listen-http", c.ListenHTTP, "--nats-servers", strings.Join(c.NATS.Servers, ","))}
	if c.ClientCADir != "" && c.TLSDir == "" {
		errs = append(errs, errors.New("--client-ca-dir needs --tls-dir: client certificates need TLS"))
	}
	if c.Objects.Endpoint != "" && c.Objects.Bucket == "" {
		errs = append(errs, errors.New("--s3-bucket is not set: name the bucket that holds the archive at --s3-endpoint"))
	}
	if c.RsyncAddress != "" && c.Objects.Endpoint == "" {
		errs = append(errs, errors.New("--rsync-address needs --s3-endpoint: without an archive there is nothing to copy"))
	}
	if c.RsyncAddress != "" && c.RsyncWindow <= 0 || c.RsyncMaxTransfers < 0 {
		errs = append(errs, errors.New("--rsync-window must be positive, and --rsync-max-transfers not negative"))
	}
	if _, err := endpoint.ParseProxies(c.Proxies); err != nil {
		errs = append(errs, fmt.Errorf("--proxies: %w", err))
	}
	if l := c.Limits; l.Person.PerSecond <= 0 || l.Person.Burst < 1 || l.Robot.PerSecond <= 0 || l.Robot.Burst < 1 || l.Patience <= 0 || l.Waiting < 1 || l.Clients < 1 {
		errs = append(errs, errors.New("--person-requests-per-second, --person-burst, --robot-requests-per-second, --robot-burst, "+
			"--request-patience, --waiting-requests and --limited-clients must be positive"))
	}
	if l := c.Limits; l.Failures.PerSecond <= 0 || l.Failures.Burst < 1 {
		errs = append(errs, errors.New("--failures-per-second and --failures-burst must be positive"))
	}
	if c.ArchiveSize != 0 && c.ArchiveSize < minArchive {
		errs = append(errs, fmt.Errorf("--archive-size %d: at least %d bytes are needed", c.ArchiveSize, minArchive))
	}
	if c.MaxConnections < 0 || c.MaxSockets < 0 {
		errs = append(errs, errors.New("--max-connections and --max-sockets must not be negative"))
	}
	if c.RingSize != 0 && c.RingSize < minRing {
		errs = append(errs, fmt.Errorf("--ring-size %d: at least %d bytes are needed", c.RingSize, minRing))
	}
	if c.Readers < 1 || c.DrainTimeout <= 0 {
		errs = append(errs, errors.New("--readers and --drain-timeout must be positive"))
	}
	return errors.Join(errs...)
}
