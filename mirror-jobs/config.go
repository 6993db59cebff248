// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Config is the configuration of a run.
type Config struct {
	// Site is the Site's code, Partner the name of the MirrorPartner.
	Site, Partner string
	// Run names it in reports, Pod is where it runs, and Trigger what it was begun by:
	// wire.MirrorScheduled, wire.MirrorManual, wire.MirrorContinuously or
	// wire.MirrorTimetable.
	Run, Pod, Trigger string
	// From and To bound the time of observation further; zero: no bound.
	From, To time.Time
	// VerifyOnly compares and moves nothing; Force moves and compares all that is selected.
	VerifyOnly, Force bool

	// ScratchDir holds what is on its way. Nothing in it is missed. ScratchSize is what large objects that are pulled from another
	// Substorm may take of the disk there, in bytes; 0: what is free.
	ScratchDir  string
	ScratchSize int64
	// CredentialsDir has the files wire.MirrorFile….
	CredentialsDir string
	// ListenHTTP serves /healthz, /readyz and /metrics; empty: they are not served.
	ListenHTTP string

	// Objects has the archive; without an endpoint and a bucket the run cannot read it: a pull by rsync or from a web archive does not.
	Objects objectstore.Config
	NATS    stream.Config

	// LogLevel is debug, info, warn or error; Log gets the lines.
	LogLevel string
	Log      io.Writer
}

// check fills in what may be left out and returns what is missing or wrong, all of it.
func (c *Config) check() error {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	errs := []error{flags.Required("--site", c.Site, "--partner", c.Partner, "--run", c.Run, "--scratch-dir", c.ScratchDir,
		"--nats-servers", strings.Join(c.NATS.Servers, ","))}
	if c.readsArchive() {
		errs = append(errs, flags.Required("--s3-endpoint", c.Objects.Endpoint, "--s3-bucket", c.Objects.Bucket))
	}
	switch c.Trigger {
	case wire.MirrorScheduled, wire.MirrorManual, wire.MirrorContinuously, wire.MirrorTimetable:
	default:
		errs = append(errs, fmt.Errorf("--trigger %q is neither %s, %s, %s nor %s", c.Trigger, wire.MirrorScheduled, wire.MirrorManual, wire.MirrorContinuously, wire.MirrorTimetable))
	}
	if c.ScratchSize < 0 {
		errs = append(errs, fmt.Errorf("--scratch-size %d is negative", c.ScratchSize))
	}
	if c.VerifyOnly && c.Force {
		errs = append(errs, errors.New("--verify-only moves nothing, and --force all: choose one"))
	}
	if !c.From.IsZero() && !c.To.IsZero() && !c.From.Before(c.To) {
		errs = append(errs, errors.New("--observed-from is not before --observed-to"))
	}
	return errors.Join(errs...)
}

// readsArchive says whether the run is configured with the place of the archive.
func (c *Config) readsArchive() bool { return c.Objects.Endpoint != "" || c.Objects.Bucket != "" }
