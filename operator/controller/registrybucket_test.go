// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/observed"
)

// farServer is a proxy in front of a server: what clients send is delayed. It can be limited to a number of bytes.
type farServer struct {
	listener net.Listener
	delay    time.Duration
	left     atomic.Int64
}

// far returns a server before the one at an address.
func far(t *testing.T, address string, delay time.Duration) *farServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &farServer{listener: listener, delay: delay}
	f.left.Store(1 << 40)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, server); client.Close() }()
			go f.carry(server, client)
		}
	}()
	return f
}

type parcel struct {
	data []byte
	due  time.Time
}

// carry delivers each piece a while after it came. Pieces that come meanwhile are delayed at the same time, not one after the other.
func (f *farServer) carry(server, client net.Conn) {
	way := make(chan parcel, 1<<16)
	go func() {
		defer server.Close()
		defer client.Close()
		for p := range way {
			time.Sleep(time.Until(p.due))
			if f.left.Add(-int64(len(p.data))) < 0 {
				return
			}
			if _, err := server.Write(p.data); err != nil {
				return
			}
		}
	}()
	defer close(way)
	for {
		data := make([]byte, 32<<10)
		n, err := client.Read(data)
		if n > 0 {
			way <- parcel{data[:n], time.Now().Add(f.delay)}
		}
		if err != nil {
			return
		}
	}
}

// manyEntries is more than can be written one after the other in any deadline that is one
// for all.
const manyEntries = 20_000

func registryOf(n int) entries.Change {
	c := entries.Change{Complete: &wire.RegistryComplete{Revision: 1, Count: n}}
	for i := range n {
		c.Put = append(c.Put, wire.InstrumentEntry{UID: "u", Generation: 1, Revision: 1, Instrument: fmt.Sprintf("mag-%05d", i),
			Gateway: "pool", Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: 30100, Channel: "raw"}}})
	}
	return c
}

// farRegistry is a registry whose server is 5 ms away.
func farRegistry(t *testing.T) (*farServer, jetstream.JetStream, jetstream.KeyValue) {
	t.Helper()
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	way := far(t, strings.TrimPrefix(server.URL(), "nats://"), 5*time.Millisecond)
	nc, err := nats.Connect("nats://"+way.listener.Addr().String(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return way, js, newRegistry(t, js, 1)
}

func newRegistry(t *testing.T, js jetstream.JetStream, replicas int) jetstream.KeyValue {
	t.Helper()
	if _, err := ensureBucket(t.Context(), js, bus.Bucket{Name: wire.RegistryBucket("hub"), Replicas: replicas}); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func linkTo(js jetstream.JetStream, kv jetstream.KeyValue) *link {
	log := slog.New(slog.DiscardHandler)
	return &link{facts: newFacts(time.Now(), log), log: log, now: time.Now, js: js, registry: kv, writer: nuid.Next(), superseded: func(error) {}}
}

// TestRegistryOfMany: a registry of many entries is written, and read by who connects,
// although a write takes 5 ms: no deadline is shared by all of them.
func TestRegistryOfMany(t *testing.T) {
	t.Parallel()
	_, js, kv := farRegistry(t)
	if err := linkTo(js, kv).write(t.Context(), registryOf(manyEntries)); err != nil {
		t.Fatal(err)
	}
	l := linkTo(js, kv)
	if err := l.readRegistry(t.Context(), js, kv); err != nil {
		t.Fatal(err)
	}
	_, _, stands, complete := l.facts.snapshot()
	if len(stands.Entries) != manyEntries || complete == nil || complete.Count != manyEntries {
		t.Errorf("%d entries stand, and the marker is %+v", len(stands.Entries), complete)
	}
}

// TestRegistryResumes: a change that a broken connection interrupts continues where it stopped.
func TestRegistryResumes(t *testing.T) {
	t.Parallel()
	way, js, kv := farRegistry(t)
	l, change := linkTo(js, kv), registryOf(manyEntries)
	one, err := wire.Encode(change.Put[0])
	if err != nil {
		t.Fatal(err)
	}
	way.left.Store(int64(len(one)) * manyEntries / 2)
	if _, err := putRegistry(t.Context(), js, kv.Bucket(), 0, change); err == nil {
		t.Fatal("it was written although the connection broke")
	}
	way.left.Store(1 << 40)
	readAgain := func() observed.RegistryState {
		t.Helper()
		if err := l.readRegistry(t.Context(), js, kv); err != nil {
			t.Fatal(err)
		}
		_, _, stands, _ := l.facts.snapshot()
		return stands
	}
	stands := readAgain()
	if len(stands.Entries) == 0 || len(stands.Entries) == manyEntries {
		t.Fatalf("%d entries stand: this test shows nothing", len(stands.Entries))
	}
	rest := change
	rest.Put = nil
	for _, e := range change.Put {
		if _, written := stands.Entries[e.Instrument]; !written {
			rest.Put = append(rest.Put, e)
		}
	}
	if err := l.write(t.Context(), rest); err != nil {
		t.Fatal(err)
	}
	if stands := readAgain(); len(stands.Entries) != manyEntries {
		t.Errorf("%d entries stand", len(stands.Entries))
	}
	info, err := js.Stream(t.Context(), "KV_"+kv.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	// Those whose answer was lost are written again, and no more.
	if last := info.CachedInfo().State.LastSeq; last > manyEntries+1+maxWrites {
		t.Errorf("%d writes of %d entries: it began anew", last, manyEntries)
	}
}

// TestRegistryHasOneWriter: an operator that was replaced writes nothing any more, neither what it had planned before nor what it plans
// after it has read the registry again, and ends. The bucket stays in use.
func TestRegistryHasOneWriter(t *testing.T) {
	t.Parallel()
	t.Run("far away", func(t *testing.T) {
		t.Parallel()
		_, js, kv := farRegistry(t)
		hasOneWriter(t, js, kv)
	})
	t.Run("three replicas", func(t *testing.T) {
		t.Parallel()
		js := testenv.NATSCluster(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
		hasOneWriter(t, js, newRegistry(t, js, 3))
	})
}

func hasOneWriter(t *testing.T, js jetstream.JetStream, kv jetstream.KeyValue) {
	t.Helper()
	read := func() (*link, observed.RegistryState) {
		t.Helper()
		l := linkTo(js, kv)
		if err := l.readRegistry(t.Context(), js, kv); err != nil {
			t.Fatal(err)
		}
		_, _, stands, _ := l.facts.snapshot()
		return l, stands
	}
	first, _ := read()
	ended := 0
	first.superseded = func(error) { ended++ }
	if err := first.write(t.Context(), registryOf(3)); err != nil {
		t.Fatal(err)
	}
	stale := registryOf(200) // planned, and not written when it stopped
	stale.Complete.Revision, stale.Delete = 2, []string{"mag-00000"}

	second, _ := read()
	_, _, _, claim := second.facts.snapshot() // what it begins with, where it has nothing to change
	if err := second.write(t.Context(), entries.Change{Complete: claim}); err != nil {
		t.Fatal(err)
	}
	before := first.last
	for range 2 {
		if err := first.write(t.Context(), stale); err == nil {
			t.Error("the first operator writes on")
		}
	}
	if ended == 0 {
		t.Error("nobody told the first operator to end")
	}
	if first.last != before {
		t.Error("it goes on after what the second wrote")
	}
	l, stands := read()
	if len(stands.Entries) != 3 {
		t.Errorf("%d entries stand", len(stands.Entries))
	}
	if !second.owns() || l.last != second.last {
		t.Errorf("the newest message is %d, and the second operator wrote %d", l.last, second.last)
	}
	if err := second.write(t.Context(), registryOf(4)); err != nil {
		t.Errorf("the second operator cannot go on: %v", err)
	}
}

// TestRegistryHasOneWriterBesideMirrors: what runs of mirrors write keeps the operator from nothing, and hides nothing from it.
func TestRegistryHasOneWriterBesideMirrors(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	kv := newRegistry(t, js, 1)
	put := func(key string) {
		t.Helper()
		if _, err := kv.Put(t.Context(), key, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *link {
		t.Helper()
		l := linkTo(js, kv)
		l.superseded = func(error) {}
		if err := l.readRegistry(t.Context(), js, kv); err != nil {
			t.Fatal(err)
		}
		return l
	}
	guest, mover := wire.RegistryGuestKey("arctic", "cam-1"), wire.RegistryMoverKey("arctic", wire.MirrorManual)
	l := read()
	for n, keys := range [][]string{{guest}, {mover, guest, mover}, {}} {
		for _, key := range keys {
			put(key)
		}
		change := registryOf(20 * (n + 1)) // more than are written one by one
		change.Complete.Revision = int64(n + 1)
		if err := l.write(t.Context(), change); err != nil {
			t.Fatalf("after %v: %v", keys, err)
		}
	}
	for _, key := range []string{guest, mover} {
		if _, err := kv.Get(t.Context(), key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	other := read()
	put(guest)
	if err := other.write(t.Context(), registryOf(1)); err != nil {
		t.Fatal(err)
	}
	put(mover)
	if err := l.write(t.Context(), registryOf(2)); err == nil {
		t.Error("it writes on where another wrote between mirrors")
	}
}

// TestRegistryPastManyGuests: however many guests runs of mirrors wrote since, and however far the server is, the operator writes.
func TestRegistryPastManyGuests(t *testing.T) {
	t.Parallel()
	_, js, kv := farRegistry(t)
	l := linkTo(js, kv)
	if err := l.readRegistry(t.Context(), js, kv); err != nil {
		t.Fatal(err)
	}
	for i := range 4 * int(opTimeout/(5*time.Millisecond)) {
		if _, err := js.PublishAsync("$KV."+kv.Bucket()+"."+wire.RegistryGuestKey("arctic", fmt.Sprint("mag-", i)), []byte("{}"), jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if err := l.write(t.Context(), registryOf(2)); err != nil {
		t.Fatal(err)
	}
}
