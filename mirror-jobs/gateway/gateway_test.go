// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/gateway"
)

// TestPut brings objects to the gateway of a Site, which stops in the middle of one: it is given up there, and is brought once the
// gateway continues.
func TestPut(t *testing.T) {
	t.Parallel()
	nats, minio, bucket := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}), testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.BucketName()
	store := minio.Bucket(t, bucket)
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	guest := wire.GuestEntry{Origin: "arctic", Instrument: "allsky-1", Partner: "north", SaidAt: time.Now().UTC(), MediaType: "image/fits"}
	nats.Declare(t, "hub", testenv.Registry{Revision: 1, Guests: []wire.GuestEntry{guest}, Mirrors: []wire.MirrorEntry{{
		Partner: "north", Direction: wire.MirrorPull, Continuous: &wire.MirrorContinuous{IntervalMillis: 60_000},
		HTTPS: &wire.MirrorHTTPS{URL: "https://archive.example.org", Source: wire.MirrorSourceSubstorm, Origin: "arctic"},
	}}})
	g := testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Flags: []string{"--mirror-listen", "127.0.0.1:0", "--pod-ip", "127.0.0.1"}})
	told := &lines{said: make(chan string, 100)}
	client, err := gateway.Open(t.Context(), gateway.Config{Site: "hub", Partner: "north", Kind: wire.MirrorScheduled, JetStream: js, Connections: 2,
		Silence: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(told, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put := func(name string, object []byte, open func() (io.ReadCloser, error)) {
		t.Helper()
		m := wire.MirroredObject{Origin: &wire.Origin{Site: "arctic", ID: "o/arctic/allsky-1/n/" + name}, Path: name, Size: int64(len(object)), Digest: sha256.Sum256(object),
			ReceivedAt: time.Date(2021, 3, 17, 6, 30, 0, 0, time.UTC), TimeSource: wire.TimeSourceReceived}
		if err := client.Put(t.Context(), gateway.Object{Instrument: guest.Name(), Record: m, Open: open}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _, err := store.Get(t.Context(), m.Origin.ObjectID("hub", guest.Name(), m.ReceivedAt, m.Digest), objectstore.All)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer body.Close()
		h := sha256.New()
		if _, err := io.Copy(h, body); err != nil || wire.Digest(h.Sum(nil)) != m.Digest {
			t.Errorf("%s is another in the bucket: %v", name, err)
		}
	}
	for name, object := range map[string][]byte{"empty.fits": {}, "small.fits": []byte("small"), "parts.fits": make([]byte, 40<<20)} {
		put(name, object, gateway.Bytes(object))
	}

	object := make([]byte, 64<<20)
	object[0] = 1
	first := sync.OnceFunc(g.Pause)
	t.Cleanup(g.Continue)
	go func() {
		for {
			select {
			case line := <-told.said:
				if strings.Contains(line, "takes nothing of the object") {
					g.Continue()
					return
				}
			case <-t.Context().Done():
				return
			}
		}
	}()
	put("stopped.fits", object, func() (io.ReadCloser, error) {
		body, _ := gateway.Bytes(object)()
		return pausing{body, first}, nil
	})
}

// A run that has lost its lease leaves the certificate of the run that took its place.
func TestCloseAfterNext(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	testenv.CreateSite(t, js, "hub")
	open := func() *gateway.Client {
		t.Helper()
		c, err := gateway.Open(t.Context(), gateway.Config{Site: "hub", Partner: "north", Kind: wire.MirrorScheduled, JetStream: js, Connections: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	kv, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	first := open()
	next := open()
	first.Close()
	if _, err := kv.Get(t.Context(), wire.RegistryMoverKey("north", wire.MirrorScheduled)); err != nil {
		t.Errorf("gateways do not know the run that lasts: %v", err)
	}
	next.Close()
	if _, err := kv.Get(t.Context(), wire.RegistryMoverKey("north", wire.MirrorScheduled)); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("gateways know a run that is over: %v", err)
	}
}

// A gateway whose clock differs from this machine's is used: the NATS server determines the age of its report.
func TestClockOfGateway(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	testenv.CreateSite(t, js, "hub")
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		kv, err := js.KeyValue(t.Context(), wire.StatusBucket("hub"))
		if err == nil {
			err = stream.Save(t.Context(), kv, wire.GatewayStatusKey("pool-0"), wire.GatewayStatus{Gateway: "pool-0", Incarnation: "one", ReportedAt: time.Now().Add(off).UTC(),
				Mirror: &wire.MirrorListener{Address: listener.Addr().String()}})
		}
		if err != nil {
			t.Fatal(err)
		}
		client, err := gateway.Open(t.Context(), gateway.Config{Site: "hub", Partner: "north", Kind: wire.MirrorScheduled, JetStream: js, Connections: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		put := make(chan error, 1)
		go func() {
			put <- client.Put(ctx, gateway.Object{Instrument: "arctic_allsky-1", Open: gateway.Bytes(nil), Record: wire.MirroredObject{Path: "a", ReceivedAt: time.Now().UTC()}})
		}()
		time.AfterFunc(testenv.Patience, func() { _ = listener.Close() })
		if c, err := listener.Accept(); err != nil {
			t.Errorf("a gateway whose clock is off by %s is not asked", off)
		} else {
			_ = c.Close()
		}
		cancel()
		if err := <-put; err == nil {
			t.Error("there is no gateway, and it took an object")
		}
		client.Close()
		_ = listener.Close()
	}
}

// pausing stops the gateway before the first byte is read.
type pausing struct {
	io.ReadCloser
	pause func()
}

// Read implements io.Reader.
func (p pausing) Read(b []byte) (int, error) {
	p.pause()
	return p.ReadCloser.Read(b)
}

// lines passes on what is logged.
type lines struct{ said chan string }

// Write implements io.Writer.
func (l *lines) Write(line []byte) (int, error) {
	select {
	case l.said <- string(line):
	default:
	}
	return len(line), nil
}
