// SPDX-License-Identifier: Apache-2.0

//go:build linux

package natsserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/up/natsserver"
	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
)

// disk is a server whose streams lie on a disk of its own.
type disk struct {
	image, dir string
	// data of the server.
	data          string
	config, creds []byte
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{}
	d.image, d.dir = testenv.DiskOf(t, 128<<20)
	d.data = filepath.Join(d.dir, "nats")
	d.config, d.creds = accounts(t)
	return d
}

func (d *disk) start(t *testing.T) (*natsserver.Server, jetstream.JetStream) {
	t.Helper()
	s, err := natsserver.Start(t.Context(), natsserver.Config{Dir: d.data, Domain: "hub", Accounts: d.config, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	stream.Embed(s)
	t.Cleanup(func() { stream.Embed(nil); s.Stop() })
	nc, err := stream.Connect(t.Context(), stream.Config{Servers: []string{stream.EmbeddedURL}, Credentials: d.creds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return s, js
}

func (d *disk) flushes(t *testing.T) uint64 {
	t.Helper()
	n, err := testenv.Flushes(d.dir)
	if err != nil {
		t.Skip(err)
	}
	return n
}

// bucket makes one as the operator does.
func bucket(t *testing.T, js jetstream.JetStream, b kvbucket.Bucket) jetstream.KeyValue {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), b.Stream(jetstream.StreamConfig{})); err != nil {
		t.Fatal(err)
	}
	if err := stream.Sync(t.Context(), js.Conn(), kvbucket.StreamName(b.Name), 0); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), b.Name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// TestReportsNeedNoSync: reports and renewals of leases make the disk write nothing by themselves, whatever their number. Writes
// that must outlive a power cut are synced on request, all at once, and last.
func TestReportsNeedNoSync(t *testing.T) {
	d := newDisk(t)
	s, js := d.start(t)
	status := bucket(t, js, kvbucket.Bucket{Name: "STATUS_hub", Replicas: 1, Forgets: true, Unsynced: true})
	ledger := bucket(t, js, kvbucket.Bucket{Name: "LEDGER_hub", Replicas: 1})
	const reports = 40
	writes := func(kv jetstream.KeyValue) (flushed uint64, last uint64) {
		t.Helper()
		before := d.flushes(t)
		for i := range reports {
			revision, err := kv.Put(t.Context(), fmt.Sprintf("gateway.%d", i%4), fmt.Appendf(nil, "report %d", i))
			if err != nil {
				t.Fatal(err)
			}
			last = revision
		}
		return d.flushes(t) - before, last
	}
	if n, _ := writes(ledger); n < reports {
		t.Fatalf("%d synced writes are %d flushes: this test counts nothing", reports, n)
	}
	n, last := writes(status)
	if n > reports/10 {
		t.Errorf("%d reports flush the disk %d times", reports, n)
	}
	before := d.flushes(t)
	if err := s.SyncStream(t.Context(), "KV_STATUS_hub", last); err != nil {
		t.Fatal(err)
	}
	if n := d.flushes(t) - before; n == 0 || n > 4 {
		t.Errorf("one sync flushes the disk %d times", n)
	}
	before = d.flushes(t)
	for _, name := range []string{"KV_STATUS_hub", "KV_LEDGER_hub"} {
		if err := s.SyncStream(t.Context(), name, last); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.flushes(t) - before; n != 0 {
		t.Errorf("a sync of what is synced flushes the disk %d times", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.SyncStream(ctx, "KV_STATUS_hub", last+1); err == nil {
		t.Error("a message that does not exist is on the disk")
	}

	d.data = filepath.Join(testenv.CutPower(t, d.image), "nats")
	_, js = d.start(t)
	for name, from := range map[string]int{"STATUS_hub": reports - 4, "LEDGER_hub": reports - 4} {
		kv, err := js.KeyValue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < reports; i++ {
			e, err := kv.Get(t.Context(), fmt.Sprintf("gateway.%d", i%4))
			if err != nil || string(e.Value()) != fmt.Sprintf("report %d", i) {
				t.Errorf("after a power cut %s has of report %d: %v, %v", name, i, e, err)
			}
		}
	}
}

// TestLeaseOutlivesTheServer: a lease whose renewals are not synced has its holder and its revision after the server was restarted, as
// when a full disk has space again, so that no other process gets it and its holder keeps it.
func TestLeaseOutlivesTheServer(t *testing.T) {
	d := &disk{data: t.TempDir()}
	d.config, d.creds = accounts(t)
	s, js := d.start(t)
	bucket(t, js, kvbucket.Bucket{Name: "LEASE_hub", TTL: time.Minute, Replicas: 1, Unsynced: true})
	kv, err := js.KeyValue(t.Context(), "LEASE_hub")
	if err != nil {
		t.Fatal(err)
	}
	revision, err := kv.Create(t.Context(), "archivist", []byte("a"))
	for range 10 {
		if err == nil {
			revision, err = kv.Update(t.Context(), "archivist", []byte("a"), revision)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	_, js = d.start(t)
	if kv, err = js.KeyValue(t.Context(), "LEASE_hub"); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), "archivist", []byte("b")); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("another takes the lease: %v", err)
	}
	if _, err := kv.Update(t.Context(), "archivist", []byte("a"), revision); err != nil {
		t.Errorf("its holder cannot renew it: %v", err)
	}
}
