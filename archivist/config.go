// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
)

// Config is the configuration of an archivist's pod.
type Config struct {
	// Site is the Site's code, Pod the pod's name.
	Site, Pod string
	// ScratchDir holds what is being written. It is emptied at the start, and nothing in
	// it is missed.
	ScratchDir string
	// ListenHTTP serves /healthz, /readyz and /metrics.
	ListenHTTP string

	Objects objectstore.Config
	NATS    stream.Config

	// Memory bounds what is remembered of the archive, in bytes; 0 means half of the memory limit,
	// or 128 MiB without one.
	Memory int64
	// ObservationRetention and NoticeRetention are how long archived messages stay on
	// the base streams.
	ObservationRetention, NoticeRetention time.Duration
	// PartInterval is how often manifest parts are closed.
	PartInterval time.Duration
	// CompactAfter is how long after its end a day is compacted, CompactGrace how long
	// what that replaces stays.
	CompactAfter, CompactGrace time.Duration
	// ScrubRate is how many bytes a second of the archive are compared with their
	// digests; negative: none.
	ScrubRate int64
	// ForwardNetworks are those to which copies for old servers may go beside public
	// addresses.
	ForwardNetworks []netip.Prefix

	// LogLevel is debug, info, warn or error; Log gets the lines.
	LogLevel string
	Log      io.Writer
}

// check fills in what may be left out and returns what is missing or wrong, all of it.
func (c *Config) check() error {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	errs := []error{flags.Required("--site", c.Site, "--pod", c.Pod, "--scratch-dir", c.ScratchDir, "--listen-http", c.ListenHTTP,
		"--s3-endpoint", c.Objects.Endpoint, "--s3-bucket", c.Objects.Bucket, "--nats-servers", strings.Join(c.NATS.Servers, ","))}
	if c.Memory < 0 {
		errs = append(errs, fmt.Errorf("--memory %d is negative", c.Memory))
	}
	for _, d := range []struct {
		flag string
		is   time.Duration
	}{
		{"--observation-retention", c.ObservationRetention}, {"--notice-retention", c.NoticeRetention}, {"--part-interval", c.PartInterval},
		{"--compact-after", c.CompactAfter}, {"--compact-grace", c.CompactGrace},
	} {
		if d.is <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive", d.flag))
		}
	}
	return errors.Join(errs...)
}
