// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// lastingLease is for tests in which no lease may be lost for want of a processor:
// a copy whose sender lost it may have sent its last object twice.
func (l *lab) lastingLease() {
	l.t.Helper()
	_, err := l.js.CreateOrUpdateKeyValue(l.t.Context(), jetstream.KeyValueConfig{
		Bucket: wire.LeaseBucket(l.site), TTL: time.Minute, History: 1, Storage: jetstream.FileStorage})
	if err != nil {
		l.t.Fatal(err)
	}
}

// forwarding is a lab one of whose instruments is copied.
func (l *lab) forwarding(address, protocol string) {
	e := l.settings[camera]
	if protocol == wire.ProtocolUDP {
		e = l.settings[mag]
	}
	e.Forward = &wire.ForwardEntry{Address: address, Protocol: protocol, Until: time.Now().Add(time.Hour)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settings[e.Instrument] = e
}

func (l *lab) declared() ([]wire.InstrumentEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []wire.InstrumentEntry
	for _, e := range l.settings {
		all = append(all, e)
	}
	return all, true
}

func (l *lab) forwardConfig(gateway string) Config {
	cfg := l.config(gateway)
	cfg.Declared = l.declared
	cfg.ForwardNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.SweepAge = time.Hour // what a test has stored and not announced yet, the sweep leaves alone
	return cfg
}

// forwardStatus is the status of a copy as reported to the Site.
func (l *lab) forwardStatus(instrument string) wire.ForwardStatus {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.ForwardStatusKey(instrument))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.ForwardStatus{}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	status, err := wire.Decode[wire.ForwardStatus](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return status
}

// sendFramed stores and announces an object with what stood around it.
func (l *lab) sendFramed(at time.Time, body, framing string) {
	l.t.Helper()
	n := l.putObject(camera, object{at, body})
	n.Port, n.Framing = 30100, framing
	l.announce(n)
}

// announceAtOnce announces objects without waiting for one before the next: what
// is announced within two seconds is put in order.
func (l *lab) announceAtOnce(notices []wire.Notice) {
	l.t.Helper()
	var messages []*nats.Msg
	for _, n := range notices {
		m, err := stream.NoticeMessage(n, "gateway-0")
		if err != nil {
			l.t.Fatal(err)
		}
		messages = append(messages, m)
	}
	for _, m := range messages {
		if _, err := l.js.PublishMsgAsync(m); err != nil {
			l.t.Fatal(err)
		}
	}
	<-l.js.PublishAsyncComplete()
}

// A copy is byte for byte what came, in its order, whatever the framing, with the old server away
// for a while, hanging for a while, and the lease passing on. The archive continues to work all
// that while.
func TestForwardedObjects(t *testing.T) {
	l := start(t).site(t, "thule")
	l.lastingLease()
	old := newOldServer(t)
	old.down()
	l.forwarding(old.address, wire.ProtocolTCP)
	stop := l.run(l.forwardConfig("a"))
	now := time.Now().UTC()
	var expected strings.Builder
	objects := 0
	send := func(body, framing string) {
		l.sendFramed(now.Add(time.Duration(objects)*time.Millisecond), body, framing)
		objects++
		switch framing {
		case wire.FramingLines:
			expected.WriteString(body + "\n")
		case wire.FramingLengthPrefixed:
			expected.Write(binary.BigEndian.AppendUint32(nil, uint32(len(body))))
			expected.WriteString(body)
		default:
			expected.WriteString(body)
		}
	}
	for i := range 10 {
		send(fmt.Sprintf("object %d;", i), "")
		send(fmt.Sprintf("line %d", i), wire.FramingLines)
		send(fmt.Sprintf("another line %d", i), wire.FramingLines)
		send(fmt.Sprintf("prefixed %d", i), wire.FramingLengthPrefixed)
	}
	l.await("the backlog is reported", func() bool {
		s := l.forwardStatus(camera)
		return s.Backlog.Items == uint64(objects) && s.Backlog.Bytes > 0 && s.Sent.Items == 0 && s.Oldest != nil && s.Oldest.Equal(now) &&
			strings.Contains(s.LastError, "refused") && s.Address == old.address
	})
	l.await("the archive goes on", func() bool { return len(l.listed(camera)) == objects })
	old.up()
	l.await("the old server has caught up", func() bool { return old.received() == expected.String() })

	old.hold.Lock() // it hangs, and reads nothing
	large := make([]byte, 12<<20)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	send(string(large), "")
	send("after the large one;", "")
	l.await("the archive goes on while the old server hangs", func() bool { return len(l.listed(camera)) == objects })
	l.await("the backlog is reported", func() bool { return l.forwardStatus(camera).Backlog.Items == 2 })
	old.hold.Unlock()
	l.await("the old server has the large one", func() bool { return old.received() == expected.String() })

	old.down()
	stop()
	l.run(l.forwardConfig("b"))
	for i := range 5 {
		send(fmt.Sprintf("late %d;", i), "")
	}
	var late []wire.Notice // stored side by side, and announced as it happens
	for i := range 40 {
		body := fmt.Sprintf("line %d of many", i)
		n := l.putObject(camera, object{now.Add(time.Duration(objects) * time.Millisecond), body})
		n.Framing = wire.FramingLines
		objects++
		expected.WriteString(body + "\n")
		late = append(late, n)
	}
	rand.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	l.announceAtOnce(late)
	old.up()
	l.await("the old server has all", func() bool { return old.received() == expected.String() })
	l.await("the figures say so", func() bool {
		s := l.forwardStatus(camera)
		return s.Sent.Items == uint64(objects) && s.Backlog == wire.ForwardTotals{} && s.Dropped == wire.ForwardTotals{} && s.LastError == "" &&
			s.Oldest == nil && s.Gateway == "b"
	})
	if old.cut > 0 {
		t.Errorf("%d connections were cut", old.cut)
	}
}

// Objects that the instrument did not send, that came after the date, that were marked as duplicates, or that are
// damaged or gone are left out, and the last two kinds are counted.
func TestWhatIsNotForwarded(t *testing.T) {
	l := start(t).site(t, "thule")
	l.lastingLease()
	old := newOldServer(t)
	old.down()
	now := time.Now().UTC()
	l.forwarding(old.address, wire.ProtocolTCP)
	l.settings[camera].Forward.Until = now.Add(time.Minute)
	for _, body := range []string{"first;", "gone;", "damaged;", "last;"} {
		n := l.putObject(camera, object{now, body})
		if body == "damaged;" {
			metadata, err := wire.ObjectMetadata(n)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.store.Put(t.Context(), n.Key, strings.NewReader("Damaged;"), n.Size, objectstore.PutOptions{Metadata: metadata}); err != nil {
				t.Fatal(err)
			}
		}
		l.announce(n)
		if body == "gone;" {
			if err := l.store.Delete(t.Context(), n.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.send(camera, now.Add(10*time.Second), "first;") // a duplicate
	l.send(camera, now.Add(time.Minute), "too late;")
	imported := l.putObject(camera, object{now.Add(-time.Hour), "imported;"})
	imported.Gateway = wire.ImportWriter
	l.announce(imported)
	l.run(l.forwardConfig("a"))
	l.await("the duplicate is removed", func() bool { return len(l.keys(camera, wire.StateDuplicate)) == 1 && len(l.stored(camera)) == 5 })
	old.up()
	l.await("all is decided", func() bool {
		s := l.forwardStatus(camera)
		return s.Backlog.Items == 0 && s.Sent.Items == 3 && s.Dropped.Items == 2
	})
	if got := old.received(); got != "first;last;" {
		t.Errorf("the old server has %q", got)
	}
}

// Items that the stream loses while the old server is away are counted as dropped; a copy
// that is no longer declared is forgotten.
func TestForwardLosesTheStream(t *testing.T) {
	l := start(t).site(t, "thule")
	l.lastingLease()
	old := newOldServer(t)
	old.down()
	l.forwarding(old.address, wire.ProtocolTCP)
	now := time.Now().UTC()
	stop := l.run(l.forwardConfig("a"))
	for i := range 600 {
		l.send(camera, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprintf("object %d;", i))
	}
	l.await("the backlog is reported", func() bool { return l.forwardStatus(camera).Backlog.Items == 600 })
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	purge := func(sequence uint64) {
		t.Helper()
		if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(sequence)); err != nil {
			t.Fatal(err)
		}
	}
	purge(581) // up to 512 are in hand and not lost yet, the others are
	l.await("the loss is counted while the old server is away", func() bool {
		s := l.forwardStatus(camera)
		return s.Sent.Items == 0 && s.Dropped.Items >= 68 && s.Dropped.Items+s.Backlog.Items == 600 && s.Oldest != nil
	})
	stop()
	purge(591)
	old.up()
	l.run(l.forwardConfig("b"))
	l.await("the loss is counted", func() bool {
		s := l.forwardStatus(camera)
		return s.Sent.Items == 10 && s.Dropped.Items == 590 && s.Backlog.Items == 0
	})
	var want bytes.Buffer
	for i := 590; i < 600; i++ {
		fmt.Fprintf(&want, "object %d;", i)
	}
	if got := old.received(); got != want.String() {
		t.Errorf("the old server has %q", got)
	}
	l.mu.Lock()
	e := l.settings[camera]
	e.Forward = nil
	l.settings[camera] = e
	l.mu.Unlock()
	l.await("the copy is forgotten", func() bool { return l.forwardStatus(camera).Address == "" })
}

// Each datagram is one packet, in order; while no server listens they wait.
func TestForwardedDatagrams(t *testing.T) {
	l := start(t).site(t, "thule")
	l.lastingLease()
	listen := func(address string) *net.UDPConn {
		a, err := net.ResolveUDPAddr("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.ListenUDP("udp", a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn := listen("127.0.0.1:0")
	address := conn.LocalAddr().String()
	l.forwarding(address, wire.ProtocolUDP)
	l.run(l.forwardConfig("a"))
	now := time.Now()
	expected := map[uint64]bool{}
	var sum [sha256.Size]byte
	next := func() uint64 {
		t.Helper()
		var b [64]byte
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b[:])
		if err != nil || n != 8 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		sum = sha256.Sum256(append(sum[:], b[:n]...))
		return binary.BigEndian.Uint64(b[:n])
	}
	for range 20 {
		l.telemetry(mag, now, 50)
	}
	for _, number := range numbers(20, 50) {
		if got := next(); got != number {
			t.Fatalf("datagram %x, want %x", got, number)
		}
		expected[number] = true
	}
	conn.Close() // the old server is away
	for range 5 {
		l.telemetry(mag, now, 3)
	}
	l.await("the backlog is reported", func() bool {
		s := l.forwardStatus(mag)
		return s.Sent.Items == 1000 && s.Backlog.Items == 15 && strings.Contains(s.LastError, "refused")
	})
	conn = listen(address)
	seen := map[uint64]bool{}
	for _, number := range numbers(25, 3) {
		if !expected[number] {
			for got := next(); got != number; got = next() { // after a refusal the last may come twice
				if !seen[got] {
					t.Fatalf("datagram %x, want %x", got, number)
				}
			}
			seen[number] = true
		}
	}
	l.await("the figures say so", func() bool { s := l.forwardStatus(mag); return s.Sent.Items == 1015 && s.Backlog.Items == 0 })
}
