// SPDX-License-Identifier: Apache-2.0

package udp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestGather: datagrams wait for those of other instruments where their Instrument's acknowledge allows it, and not where it promises more.
// Not one is lost when the gateway drains.
func TestGather(t *testing.T) {
	b := newBench(t, benchConfig{gather: time.Hour})
	waits, spooled, stored, replicated := freePort(t), freePort(t), freePort(t), freePort(t)
	entry := func(name string, port uint16, acknowledge string) wire.InstrumentEntry {
		e := instrument(name, port)
		e.Acknowledge = acknowledge
		return e
	}
	b.register(entry("waits", waits, "StoredOrSpooled"), entry("spooled", spooled, "Spooled"), entry("stored", stored, "Stored"),
		entry("replicated", replicated, "Replicated"))
	for _, port := range []uint16{waits, spooled} {
		b.send("127.0.0.1", port, 3, nil)
	}
	received := func(name string) uint64 { return b.receiver.Received()[udp.Flow{Instrument: name, Channel: "raw"}] }
	for range testenv.Attempts() {
		if received("waits") == 3 && received("spooled") == 3 {
			break
		}
	}
	for _, port := range []uint16{stored, replicated} {
		b.send("127.0.0.1", port, 3, nil)
	}
	var published map[string][]wire.Datagram
	for range testenv.Attempts() {
		if published = b.published(); len(published["stored"]) == 3 && len(published["replicated"]) == 3 {
			break
		}
	}
	// The messages that wait were received first, so they would be here if they did not wait.
	if len(published["stored"]) != 3 || len(published["replicated"]) != 3 || len(published["waits"]) != 0 || len(published["spooled"]) != 0 {
		t.Errorf("published: %v", published)
	}
	if err := b.drain(testenv.Patience); err != nil {
		t.Fatal(err)
	}
	for name, datagrams := range b.published() {
		if len(datagrams) != 3 {
			t.Errorf("%d datagrams of %s are published, of 3", len(datagrams), name)
		}
	}
	if published := b.published(); len(published) != 4 {
		t.Errorf("published: %v", published)
	}
}

// TestGatherTakesHalf: what waits takes no more than half of the memory, so that no datagram is dropped for it.
func TestGatherTakesHalf(t *testing.T) {
	const instruments, cost = 10, 3 << 10 // of the least buffer, and what a message takes besides
	b := newBench(t, benchConfig{gather: time.Hour, budget: 8 * cost})
	var ports []uint16
	var entries []wire.InstrumentEntry
	for i := range instruments {
		ports = append(ports, freePort(t))
		e := instrument(fmt.Sprintf("magnetometer-%d", i), ports[i])
		e.Acknowledge = "StoredOrSpooled"
		entries = append(entries, e)
	}
	b.register(entries...)
	for i, port := range ports {
		b.send("127.0.0.1", port, 1, nil)
		published := 0
		want := max(0, i+1-5) // four take half, and the fifth may come before that is more than half
		for range testenv.Attempts() {
			if published = len(b.published()); published >= want && len(b.receiver.Received()) > i {
				break
			}
		}
		if published < want || published > 0 && i < 4 {
			t.Fatalf("of %d messages %d are published, want %d", i+1, published, want)
		}
	}
	if err := b.drain(testenv.Patience); err != nil {
		t.Fatal(err)
	}
	if published := b.published(); len(published) != instruments {
		t.Errorf("datagrams of %d of %d instruments are published", len(published), instruments)
	}
}
