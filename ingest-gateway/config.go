// SPDX-License-Identifier: Apache-2.0

// Package ingestgateway is the ingest path: it receives what a Site's instruments
// send, archives it and announces it. README.md shows the parts.
package ingestgateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
)

// Config is the configuration of a gateway pod.
type Config struct {
	// Site is the Site's code, Pool the IngestGateway's name, Gateway the pod's.
	Site, Pool, Gateway string
	// Node and PodIP are where the pod runs; they may be empty.
	Node, PodIP string

	// DataDir is the pod's volume.
	DataDir string
	// ListenHTTP serves /healthz, /readyz and /metrics.
	ListenHTTP string
	// FirstPort and LastPort bound the ports that data comes to.
	FirstPort, LastPort uint16
	// ListenAddress is the IP address on which these are opened; empty: all.
	ListenAddress string

	// TLSDir has the certificate that senders see (tls.crt, tls.key), ClientCADir
	// the authorities of theirs (ca.crt); both may be empty.
	TLSDir, ClientCADir string
	// EdgePort takes connections of the proxies in EdgeSources, by the PROXY
	// protocol; 0 for none.
	EdgePort    uint16
	EdgeSources []netip.Prefix
	// LinkProbePort of UDP answers measurements of the link to the pool (STAMP); 0 for none.
	LinkProbePort uint16
	// MirrorListen is the address, host:port, on which runs of mirrors send what they pulled; empty for none.
	MirrorListen string
	// UnknownSenders is Refuse, the default, or Quarantine: then what they send is kept, up to
	// QuarantineMaxSize and for QuarantineRetention, and QuarantinePorts are open beside those of
	// instruments.
	UnknownSenders      string
	QuarantineMaxSize   int64
	QuarantineRetention time.Duration
	QuarantinePorts     []uint

	Objects objectstore.Config
	NATS    stream.Config

	// MaxConnections of TCP and HTTP that may be open at a time; 0 means as many as the
	// memory limit allows.
	MaxConnections int64
	// MemoryBudget in bytes for what is received and not yet safe; 0 means half of the control
	// group's memory limit, or 256 MiB without one.
	MemoryBudget int64
	// Gather is how long datagrams may wait in memory for those of other instruments, where the Instrument's acknowledge is StoredOrSpooled or
	// Spooled; 0: no longer than others. A kill or a power cut takes what waits.
	Gather time.Duration
	// SpoolSize bounds the spool, in bytes; 0 is 45% of what the volume has free or
	// the spool holds already.
	SpoolSize int64
	// Replica says how spools are copied within the pool.
	Replica ReplicaConfig
	// DrainTimeout is how long what was begun may take to finish.
	DrainTimeout time.Duration

	// LogLevel is debug, info, warn or error; Log gets the lines.
	LogLevel string
	Log      io.Writer
}

// maxGather is the longest Config.Gather.
const maxGather = time.Second

// Values of Config.UnknownSenders.
const (
	unknownSendersRefuse     = "Refuse"
	unknownSendersQuarantine = "Quarantine"
)

// check fills in what may be left out and returns what is missing or wrong, all
// of it.
func (c *Config) check() error {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	errs := []error{flags.Required("--site", c.Site, "--pool", c.Pool, "--gateway", c.Gateway, "--data-dir", c.DataDir,
		"--s3-endpoint", c.Objects.Endpoint, "--s3-bucket", c.Objects.Bucket, "--nats-servers", strings.Join(c.NATS.Servers, ","))}
	if c.FirstPort == 0 || c.FirstPort > c.LastPort {
		errs = append(errs, fmt.Errorf("--ports %d-%d is not a range of ports", c.FirstPort, c.LastPort))
	}
	if c.Gather < 0 || c.Gather > maxGather {
		errs = append(errs, fmt.Errorf("--gather %s must be from 0 to %s", c.Gather, maxGather))
	}
	if c.MaxConnections < 0 {
		errs = append(errs, fmt.Errorf("--max-connections %d must be a positive number, or 0", c.MaxConnections))
	}
	if c.MemoryBudget != 0 && c.MemoryBudget < minMemoryBudget {
		errs = append(errs, fmt.Errorf("--memory-budget %d: at least %d bytes are needed", c.MemoryBudget, minMemoryBudget))
	}
	if c.EdgePort != 0 && (len(c.EdgeSources) == 0 || c.FirstPort <= c.EdgePort && c.EdgePort <= c.LastPort) {
		errs = append(errs, fmt.Errorf("--edge-port %d needs --edge-sources, and must lie outside --ports", c.EdgePort))
	}
	if c.LinkProbePort != 0 && c.FirstPort <= c.LinkProbePort && c.LinkProbePort <= c.LastPort {
		errs = append(errs, fmt.Errorf("--link-probe-port %d must lie outside --ports", c.LinkProbePort))
	}
	if _, err := netip.ParseAddr(c.ListenAddress); c.ListenAddress != "" && err != nil {
		errs = append(errs, fmt.Errorf("--listen-address %q is not an IP address", c.ListenAddress))
	}
	if err := c.checkMirrorListen(); err != nil {
		errs = append(errs, err)
	}
	switch c.UnknownSenders {
	case "", unknownSendersRefuse:
	case unknownSendersQuarantine:
		if c.QuarantineMaxSize <= 0 || c.QuarantineRetention <= 0 {
			errs = append(errs, errors.New("--quarantine-max-size and --quarantine-retention must be positive"))
		}
	default:
		errs = append(errs, fmt.Errorf("--unknown-senders %q is neither %s nor %s", c.UnknownSenders, unknownSendersRefuse, unknownSendersQuarantine))
	}
	if c.SpoolSize < 0 {
		errs = append(errs, fmt.Errorf("--spool-size %d is negative", c.SpoolSize))
	}
	if c.Replica.Listen != "" && (c.Replica.TLSDir == "" || c.Replica.After <= 0) {
		errs = append(errs, errors.New("--replica-listen needs --replica-tls-dir, and --replica-after must be positive"))
	}
	if c.DrainTimeout <= 0 {
		errs = append(errs, errors.New("--drain-timeout must be positive"))
	}
	return errors.Join(errs...)
}

func (c *Config) checkMirrorListen() error {
	if c.MirrorListen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.MirrorListen)
	number, numberErr := strconv.ParseUint(port, 10, 16)
	if err != nil || numberErr != nil || c.FirstPort <= uint16(number) && uint16(number) <= c.LastPort {
		return fmt.Errorf("--mirror-listen %q must be host:port, such as :8444, and lie outside --ports", c.MirrorListen)
	}
	return nil
}

// listenAddress is ListenAddress, which check has looked at; the zero one for all addresses.
func (c *Config) listenAddress() netip.Addr {
	address, _ := netip.ParseAddr(c.ListenAddress)
	return address
}

func (c *Config) scope() intake.Scope {
	return intake.Scope{Pool: c.Pool, FirstPort: c.FirstPort, LastPort: c.LastPort}
}
