// SPDX-License-Identifier: Apache-2.0

// Package web is what benchmarks of the archive's endpoints have in common: a Site with
// objects that feed-server serves, nginx beside it, and what asks both.
package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/worker"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The names of what is served.
const (
	SiteCode = "bench"
	Bucket   = "archive"
	gateway  = "north-0"
	// partInterval is how soon manifests list what is announced.
	partInterval = 2 * time.Second
	never        = 1000 * time.Hour
	// patience is how long an object may take until it is served.
	patience = time.Minute
)

// The cores of a machine that has two: servers have the one, who asks has the other.
var (
	ServerCores = []int{0}
	ClientCores = []int{1}
)

// Public lets everybody read.
var Public = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}

// Options say what a Site has.
type Options struct {
	Instruments []wire.InstrumentEntry
	// Flags of feed-server.
	Flags []string
}

// Site is one whose archive feed-server serves, in a process of its own on ServerCores.
type Site struct {
	NATS   *testenv.NATSServer
	MinIO  *testenv.MinIOServer
	Store  objectstore.Store
	JS     jetstream.JetStream
	Server *testenv.FeedServer
	lab    testing.TB
	// flags of every feed-server.
	flags []string
}

// Camera is an instrument whose objects are images that everybody may see.
func Camera(name string, cadence time.Duration) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		UID: "uid-" + name, Generation: 1, Instrument: name, MediaType: "image/jpeg", CadenceMillis: cadence.Milliseconds(), Access: Public,
		MaxObjectSize: 1 << 30, Acknowledge: "Stored", SegmentAgeMillis: 600_000, SegmentSize: 64 << 20,
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP}},
	}
}

// NewSite starts a Site without objects.
func NewSite(l testing.TB, o Options) *Site {
	s := &Site{lab: l, NATS: testenv.NATS(l, testenv.NATSOptions{Unsynced: true}), MinIO: testenv.MinIO(l, testenv.MinIOOptions{})}
	s.JS, s.Store = s.NATS.JetStream(l), s.MinIO.Bucket(l, Bucket)
	testenv.CreateSite(l, s.JS, SiteCode)
	s.NATS.Declare(l, SiteCode, testenv.Registry{Revision: 1, Instruments: o.Instruments})
	s.list(o.Instruments)
	secrets := filepath.Join(l.TempDir(), "s3")
	if err := errors.Join(os.Mkdir(secrets, 0o700),
		os.WriteFile(filepath.Join(secrets, objectstore.FileAccessKeyID), []byte(s.MinIO.AccessKeyID), 0o600),
		os.WriteFile(filepath.Join(secrets, objectstore.FileSecretAccessKey), []byte(s.MinIO.SecretAccessKey), 0o600)); err != nil {
		l.Fatal(err)
	}
	// Clients say who they are by X-Forwarded-For: limits are each client's.
	s.flags = []string{"--s3-endpoint", s.MinIO.URL(), "--s3-bucket", Bucket, "--s3-credentials-dir", secrets, "--proxies", "127.0.0.0/8", "--log-level", "warn"}
	s.Start(o.Flags...)
	return s
}

// Start starts a feed-server with more flags; it is Server from now on.
func (s *Site) Start(flags ...string) {
	oneProcessor(func() {
		s.Server = testenv.StartFeedServer(s.lab, testenv.FeedServerOptions{Site: SiteCode, NATS: s.NATS, Flags: append(slices.Clone(s.flags), flags...)})
	})
	s.Pin(s.Server.PID(), ServerCores)
}

// oneProcessor lets Go programs that f starts know that they have one core.
func oneProcessor(f func()) {
	const variable = "GOMAXPROCS"
	was, had := os.LookupEnv(variable)
	_ = os.Setenv(variable, "1")
	defer func() {
		if had {
			_ = os.Setenv(variable, was)
		} else {
			_ = os.Unsetenv(variable)
		}
	}()
	f()
}

// Pin moves a process to cores.
func (s *Site) Pin(pid int, cores []int) {
	if err := process.OnCores(pid, cores); err != nil {
		s.lab.Fatal(err)
	}
}

// list keeps manifests and their index, as gateways do.
func (s *Site) list(instruments []wire.InstrumentEntry) {
	entries := map[string]wire.InstrumentEntry{}
	for _, e := range instruments {
		entries[e.Instrument] = e
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cfg := worker.Config{
		Site: SiteCode, Pod: gateway, Incarnation: "one", JetStream: s.JS, Store: s.Store,
		Settings:     func(name string) (wire.InstrumentEntry, bool) { e, ok := entries[name]; return e, ok },
		PartInterval: partInterval, SweepInterval: never, TrimInterval: never, CompactInterval: never, NoticeRetention: never, ObservationRetention: never,
		ScratchDir: s.lab.TempDir(), Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), Metrics: prometheus.NewRegistry(),
	}
	go func() { ended <- worker.Run(ctx, cfg) }()
	s.lab.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.lab.Logf("the archivist: %v", err)
		}
	})
}

// Object is what is put into the archive.
type Object struct {
	Instrument, Name, MediaType string
	Body                        []byte
	// At is when it was received.
	At time.Time
	// Observed is when what it shows was; zero: At.
	Observed time.Time
}

// URL is the path under which it is served.
func (o Object) URL() string { return "/archive/" + o.Instrument + "/" + o.Name }

// Put stores an object as one that an instrument named, and announces it.
func (s *Site) Put(ctx context.Context, o Object) (wire.Record, error) {
	digest := wire.Digest(sha256.Sum256(o.Body))
	key := wire.NamedKey(SiteCode, o.Instrument, o.Name, 1)
	observed := o.Observed
	if observed.IsZero() {
		observed = o.At
	}
	r := wire.Record{
		ID: key, Key: key, Name: o.Name, Path: o.Name, Size: int64(len(o.Body)), Digest: digest, MediaType: o.MediaType, State: wire.StateCurrent,
		ObservedFrom: &observed, ObservedTo: &observed, ReceivedAt: o.At, TimeSource: wire.TimeSourceName, Gateway: gateway, Incarnation: "one", Source: "192.0.2.7:40000",
	}
	return r, s.PutRecord(ctx, o.Instrument, r, o.Body)
}

// PutRecord stores and announces what a record describes.
func (s *Site) PutRecord(ctx context.Context, instrument string, r wire.Record, body []byte) error {
	if err := s.Store.Put(ctx, r.Key, bytes.NewReader(body), r.Size, objectstore.PutOptions{Digest: r.Digest, ContentType: r.MediaType}); err != nil {
		return err
	}
	m, err := stream.NoticeMessage(wire.Notice{Site: SiteCode, Instrument: instrument, Record: r}, gateway)
	if err != nil {
		return err
	}
	_, err = s.JS.PublishMsg(ctx, m)
	return err
}

// URL is where a path is asked for.
func (s *Site) URL(path string) string { return "http://" + s.Server.Address() + path }

// Await waits until a path is served.
func (s *Site) Await(ctx context.Context, path string) error { return await(ctx, s.URL(path)) }

// await waits until a URL is served.
func await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		status, err := head(ctx, url)
		if err == nil && status == http.StatusOK {
			return nil
		}
		if !retry.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s is not served: status %d, %w", url, status, ctx.Err())
		}
	}
}

func head(ctx context.Context, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// Metric is a figure of feed-server, by its name with labels: 0 before it counted any.
func (s *Site) Metric(name string) (float64, error) {
	value, _, err := process.Metric(s.Server.Metrics(), name)
	return value, err
}

// Noise is a body of so many bytes that does not compress, and is another for each seed.
func Noise(size, seed int) []byte {
	b := make([]byte, 0, size+sha256.Size)
	for i := 0; len(b) < size; i++ {
		sum := sha256.Sum256(fmt.Append(nil, seed, " ", i))
		b = append(b, sum[:]...)
	}
	return b[:size]
}
