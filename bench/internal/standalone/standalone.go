// SPDX-License-Identifier: Apache-2.0

// Package standalone has `substorm up` run a Site whose instruments send objects over TCP, each to a port of its own.
package standalone

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Code of the Site.
const Code = "hub"

// Probe is the name of an instrument that each Site has beside those that are asked for: what StartAndSend sends comes from it.
const Probe = "probe"

// Instrument sends objects over TCP, or datagrams.
type Instrument struct {
	Name string
	// Telemetry: it sends datagrams.
	Telemetry bool
	// Framing is spelled as in an Instrument.
	Framing string
	// PackBelow and Acknowledge are as in an Instrument; empty for its defaults.
	PackBelow, Acknowledge string
}

// Options of a Site.
type Options struct {
	Instruments []Instrument
	// DataDir is the data folder; empty for one of the lab's.
	DataDir string
	// PartInterval is the Site's; empty for its default.
	PartInterval string
	// StreamSize bounds each of the Site's two base streams; empty for its default.
	StreamSize string
	// Flags of `substorm up`.
	Flags []string
}

// Site is a `substorm up`.
type Site struct {
	*testenv.Standalone
	lab         *lab.Lab
	first       int
	instruments []Instrument
	profiles    string
}

// New declares a Site, and does not start it.
func New(l *lab.Lab, o Options) *Site {
	s := &Site{lab: l, instruments: append([]Instrument{{Name: Probe, Framing: wire.FramingUntilClose}}, o.Instruments...)}
	s.first = testenv.FreePorts(l, len(s.instruments))
	file := filepath.Join(l.TempDir(), "site.yaml")
	if err := os.WriteFile(file, []byte(s.manifests(o)), 0o600); err != nil {
		l.Fatal(err)
	}
	flags := o.Flags
	if os.Getenv(process.Profiles) != "" {
		address := testenv.Loopback(testenv.FreePort(l))
		s.profiles = "http://" + address + "/debug/pprof/"
		flags = append(flags, "--pprof-address", address)
	}
	s.Standalone = testenv.StandaloneIn(l, cmp.Or(o.DataDir, filepath.Join(l.TempDir(), "data")), file, flags...)
	return s
}

func (s *Site) manifests(o Options) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: %[1]s}
spec:
  code: %[1]s
  objectStore: {endpoint: "https://embedded.invalid", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["nats://embedded.invalid:4222"], accountKeySecretRef: {name: nats}, observations: {maxSize: %[2]s}, notices: {maxSize: %[2]s}}
  archivist: {partInterval: %[3]s}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: %[1]s}
spec: {siteRef: {name: %[1]s}, service: {type: ClusterIP}, ports: {first: %[4]d, last: %[5]d}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %[1]s}
spec: {siteRef: {name: %[1]s}, replicas: 1}
`, Code, cmp.Or(o.StreamSize, "4Gi"), cmp.Or(o.PartInterval, "1m"), s.first, s.first+len(s.instruments)-1)
	for i, inst := range s.instruments {
		fmt.Fprintf(&text, `---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec:
  siteRef: {name: %s}
  type: Magnetometer
  acknowledge: %s
  listeners: [%s]
  archive: {packBelow: %s}
`, inst.Name, Code, cmp.Or(inst.Acknowledge, "StoredOrSpooled"), inst.listener(s.first+i), cmp.Or(inst.PackBelow, "64Ki"))
	}
	return text.String()
}

func (i Instrument) listener(port int) string {
	if i.Telemetry {
		return fmt.Sprintf("{name: telemetry, protocol: UDP, port: %d}", port)
	}
	return fmt.Sprintf("{name: objects, protocol: TCP, port: %d, tcp: {framing: %s, idleTimeout: 1h, maxAge: 24h}}", port, i.Framing)
}

// Address is where an instrument sends to.
func (s *Site) Address(instrument string) string { return testenv.Loopback(s.port(instrument)) }

func (s *Site) port(instrument string) int {
	for i := range s.instruments {
		if s.instruments[i].Name == instrument {
			return s.first + i
		}
	}
	s.lab.Fatalf("the Site declares no instrument %s", instrument)
	return 0
}

// Start starts the process, and returns once it receives for all instruments.
func (s *Site) Start() error {
	if err := s.TryStart(); err != nil {
		return err
	}
	return s.awaitAll()
}

// awaitAll returns once each port of TCP listens.
func (s *Site) awaitAll() error {
	for i := range s.instruments {
		if s.instruments[i].Telemetry {
			continue
		}
		if err := await(testenv.Loopback(s.first + i)); err != nil {
			return fmt.Errorf("nobody receives for %s: %w", s.instruments[i].Name, err)
		}
	}
	return nil
}

// await returns once something listens.
func await(address string) (err error) {
	for range testenv.Attempts() {
		var conn net.Conn
		if conn, err = net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
	}
	return err
}

// Started is how long a start took.
type Started struct {
	// Receipt is from the start of the binary to the first receipt, Served to the answer of its feed server, which is asked at intervals of a
	// tenth of the time that went by.
	Receipt, Served time.Duration
	// Digest of the object.
	Digest wire.Digest
}

// pause is what lies between two tries to send.
const pause = 5 * time.Millisecond

// StartAndSend starts the process, and meanwhile sends an object of the instrument Probe again and again until it has its receipt.
func (s *Site) StartAndSend() (Started, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	object, receipted := []byte(rand.Text()), make(chan time.Time, 1)
	begin := time.Now()
	go func() {
		for ctx.Err() == nil {
			if testenv.SendObject(s.port(Probe), object) == nil {
				receipted <- time.Now()
				return
			}
			time.Sleep(pause)
		}
	}()
	if err := s.TryStart(); err != nil {
		return Started{}, err
	}
	served := time.Since(begin)
	select {
	case at := <-receipted:
		return Started{Receipt: at.Sub(begin), Served: served, Digest: sha256.Sum256(object)}, s.awaitAll()
	case <-ctx.Done():
		return Started{}, fmt.Errorf("the site serves, and an object gets no receipt within %v", testenv.Patience)
	}
}

// Profiled says whether profiles were requested.
func (s *Site) Profiled() bool { return s.profiles != "" }

// KeepProfile keeps a profile of the process in the requested folder, and does nothing if none was requested.
func (s *Site) KeepProfile(kind, name string) error {
	if s.profiles == "" {
		return nil
	}
	return process.KeepProfile(s.profiles+kind, name)
}
