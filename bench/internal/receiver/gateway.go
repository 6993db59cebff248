// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist"
	ingestgateway "github.com/substorm/substorm/ingest-gateway"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/ingest-gateway/receive/tcp"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// The Site that gateways receive for.
const (
	SiteCode    = "hub"
	BucketName  = "archive"
	Instrument  = "camera"
	pool, pod   = "north", "north-0"
	maxObject   = 1 << 30
	connections = 20_000
	scratch     = 8 << 30
	budget      = 176 << 20 // what objects get of the default budget of 256 MiB
)

// entry is the instrument that sends to a port.
func entry(o Options) wire.InstrumentEntry {
	e := wire.InstrumentEntry{
		UID: "uid-" + Instrument, Generation: 1, Revision: 1, Instrument: Instrument, Gateway: pool,
		MaxObjectSize: maxObject, MaxConnections: connections, Acknowledge: cmp.Or(o.Acknowledge, "Stored"), MediaType: "application/octet-stream",
		CadenceMillis: 60_000, RepeatWindowMillis: 720 * 3_600_000, SegmentAgeMillis: 600_000, SegmentSize: 64 << 20,
		PackBelow: o.PackBelow,
		Listeners: []wire.ListenerEntry{{
			Protocol: wire.ProtocolTCP, Port: uint16(o.Port), Framing: cmp.Or(o.Framing, wire.FramingUntilClose), Receipt: wire.ReceiptLine,
			IdleTimeoutMillis: 300_000, MaxAgeMillis: 3_600_000,
		}},
	}
	if o.Datagrams {
		e.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(o.Port), Channel: "raw"}}
	}
	return e
}

// nowhere takes every object at once and keeps none.
type nowhere struct{ objectstore.Store }

// Put implements objectstore.Store.
func (nowhere) Put(context.Context, string, io.ReadSeeker, int64, objectstore.PutOptions) error {
	return nil
}

// nobody is an Announcer that settles every notice at once.
type nobody struct{}

// Notice implements store.Announcer.
func (nobody) Notice(_ context.Context, _ wire.Notice, settled func(error)) error {
	settled(nil)
	return nil
}

// serveGateway serves what lies between the socket and the digest.
func serveGateway(ctx context.Context, o Options, ready func(string)) error {
	log, metrics := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), prometheus.NewRegistry()
	counts, err := ledger.Open(ledger.Config{Dir: filepath.Join(o.Dir, "ledger"), Site: SiteCode, Gateway: pod, Incarnation: "bench"})
	if err != nil {
		return err
	}
	objects := o.MemoryBudget
	objects = cmp.Or(objects, budget)
	slabs, err := memory.NewPool(memory.Config{Budget: objects, ScratchDir: filepath.Join(o.Dir, "scratch"), ScratchSize: scratch})
	if err != nil {
		return err
	}
	registry := intake.NewRegistry()
	server := tcp.NewServer(tcp.Config{
		Registry: registry, Logger: log, Metrics: metrics, Slots: listen.NewSlots(connections, nil),
		Archive: store.New(store.Config{
			Site: SiteCode, Gateway: pod, Incarnation: "bench", Objects: nowhere{}, Announcer: nobody{},
			Ledger: counts, Pool: slabs, Logger: log, Metrics: metrics,
		}),
	})
	file := filepath.Join(o.Dir, "registry.json")
	if err := writeRegistry(file, entry(o)); err != nil {
		return err
	}
	var failed map[uint16]error
	intake.NewFollower(intake.FollowerConfig{
		Site: SiteCode, Scope: intake.Scope{Pool: pool, FirstPort: 1, LastPort: 65535}, File: file, Registry: registry, Logger: log,
		Apply: func(s *intake.Snapshot) map[string]string {
			failed = server.Listen(s.Ports(wire.ProtocolTCP))
			return nil
		},
		Changed: func() {},
	})
	if len(failed) > 0 {
		return fmt.Errorf("the gateway does not listen: %v", failed)
	}
	ready(loopback(o.Port))
	<-ctx.Done()
	server.Close()
	return nil
}

// writeRegistry writes what a gateway finds on its volume when it starts while
// NATS is away.
func writeRegistry(file string, e wire.InstrumentEntry) error {
	value, err := wire.Encode(e)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"format": wire.Format, "site": SiteCode, "epoch": time.Now().UTC(), "revision": 1, "entries": []json.RawMessage{value},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// serveSite runs the whole gateway. Its site's streams and bucket exist.
func serveSite(ctx context.Context, o Options, ready func(string)) error {
	if err := declare(ctx, o); err != nil {
		return err
	}
	listen := loopback(o.Port + 1)
	done := make(chan error, 1)
	go func() {
		done <- ingestgateway.Run(ctx, ingestgateway.Config{
			Site: SiteCode, Pool: pool, Gateway: pod, DataDir: filepath.Join(o.Dir, "data"), ListenHTTP: listen,
			FirstPort: 1, LastPort: 65535, Objects: o.Objects.Config(), NATS: stream.Config{Servers: []string{o.NATS}},
			MemoryBudget: o.MemoryBudget, DrainTimeout: 10 * time.Second, LogLevel: "error", Log: os.Stderr,
		})
	}()
	if err := awaitReady(listen, done); err != nil {
		return fmt.Errorf("the gateway ended at its start: %w", err)
	}
	ready(loopback(o.Port))
	return <-done
}

// serveArchivist runs the archivist of the Site, which has its registry. It answers on the port.
func serveArchivist(ctx context.Context, o Options, ready func(string)) error {
	listen := loopback(o.Port)
	done := make(chan error, 1)
	go func() {
		done <- archivist.Run(ctx, archivist.Config{
			Site: SiteCode, Pod: "archivist-0", ScratchDir: o.Dir, ListenHTTP: listen, Objects: o.Objects.Config(), NATS: stream.Config{Servers: []string{o.NATS}},
			PartInterval: cmp.Or(o.PartInterval, time.Minute), CompactAfter: 24 * time.Hour, CompactGrace: 24 * time.Hour,
			ObservationRetention: time.Hour, NoticeRetention: time.Hour, LogLevel: "error", Log: os.Stderr,
		})
	}()
	if err := awaitReady(listen, done); err != nil {
		return fmt.Errorf("the archivist ended at its start: %w", err)
	}
	ready(listen)
	return <-done
}

// awaitReady waits until a program answers that it is ready, or ends: the error is what it ended with.
func awaitReady(listen string, done <-chan error) error {
	for !answers("http://" + listen + "/readyz") {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// declare writes the registry as the operator does: the entry, then the marker.
func declare(ctx context.Context, o Options) error {
	nc, err := nats.Connect(o.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	registry, err := js.KeyValue(ctx, wire.RegistryBucket(SiteCode))
	if err != nil {
		return err
	}
	value, err := wire.Encode(entry(o))
	if err != nil {
		return err
	}
	if _, err := registry.Put(ctx, wire.RegistryInstrumentKey(Instrument), value); err != nil {
		return err
	}
	marker, err := wire.Encode(wire.RegistryComplete{Revision: 1, Count: 1})
	if err != nil {
		return err
	}
	_, err = registry.Put(ctx, wire.RegistryCompleteKey, marker)
	return err
}

func answers(url string) bool {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
