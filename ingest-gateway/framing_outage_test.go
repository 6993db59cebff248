// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// pipe sends objects of one sender over one connection, as fast as it takes
// them, and returns the receipts that came back, in order, and what ended it.
func pipe(port int, objects [][]byte, receipted func()) ([]wire.Receipt, error) {
	conn, err := net.Dial("tcp", loopback(port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, o := range objects {
			if _, err := conn.Write(prefixed(o)); err != nil {
				return
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	defer func() { <-sent }()
	defer conn.Close()
	var got []wire.Receipt
	for in := bufio.NewReader(conn); ; {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		text, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && text == "" {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		r, err := wire.ParseReceipt(text)
		if err != nil {
			return got, err
		}
		got = append(got, r)
		receipted()
	}
}

// owed checks that receipts are those of the first objects, and returns the rest.
func owed(t *testing.T, objects [][]byte, receipts []wire.Receipt) [][]byte {
	t.Helper()
	if len(receipts) > len(objects) {
		t.Fatalf("%d receipts for %d objects", len(receipts), len(objects))
	}
	for i, r := range receipts {
		if r != receiptOf(objects[i]) {
			t.Fatalf("receipt %d is %+v, want %+v", i, r, receiptOf(objects[i]))
		}
	}
	return objects[len(receipts):]
}

// manyObjects makes the objects of one sender: small ones, and now and then a
// larger one. Each begins with sender and number, so that no two are equal.
func manyObjects(sender, n int) [][]byte {
	objects := make([][]byte, n)
	for i := range objects {
		size := 200 + (i*7919+sender*104729)%3000
		if i%10 == 3 {
			size = 150_000
		}
		objects[i] = random(uint64(sender*n+i), size)
		binary.BigEndian.PutUint64(objects[i], uint64(sender*n+i))
	}
	return objects
}

// A gateway is killed while senders have objects on their way: what was
// receipted is in the archive, the rest is sent again, and in the end the
// archive lists each object once, and nothing else.
func TestKillWithObjectsInFlight(t *testing.T) {
	t.Parallel()
	const senders, each = 4, 120
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, framed("camera", port, wire.FramingLengthPrefixed))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()

	var left [senders][][]byte
	for s := range left {
		left[s] = manyObjects(s, each)
	}
	some := make(chan struct{}, senders*each)
	var wg sync.WaitGroup
	for s := range left {
		wg.Go(func() {
			receipts, err := pipe(port, left[s], func() { some <- struct{}{} })
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("sender %d: the connection to a killed gateway ends with %v", s, err)
			}
			left[s] = owed(t, left[s], receipts)
		})
	}
	for range senders * each / 4 {
		<-some
	}
	l.minio.Pause()
	await(t, "objects wait for the store", func() (bool, string) {
		v := g.number("substorm_gateway_unsafe_objects")
		return v >= senders*16, fmt.Sprint(v)
	})
	g.kill()
	l.minio.Continue()
	wg.Wait()
	again := 0
	for s := range left {
		again += len(left[s])
	}
	if again == 0 || again == senders*each {
		t.Fatalf("%d of %d objects have no receipt: the kill was not amid them", again, senders*each)
	}

	g = l.start(t, gatewayOptions{dir: g.dir})
	for s := range left {
		wg.Go(func() {
			newDialog(t, port).conn.Close() // the port is open
			receipts, err := pipe(port, left[s], func() {})
			if err != nil {
				t.Errorf("sender %d: %v", s, err)
			}
			left[s] = owed(t, left[s], receipts)
		})
	}
	wg.Wait()
	want := map[wire.Digest]int{}
	for s := range senders {
		if len(left[s]) > 0 {
			t.Errorf("sender %d: %d objects have no receipt", s, len(left[s]))
		}
		for _, o := range manyObjects(s, each) {
			want[receiptOf(o).Digest] = 1
		}
	}
	await(t, "each object is listed once, and nothing else", func() (bool, string) {
		listed := l.listing(t, "camera")
		for digest, n := range listed {
			if want[digest] == 0 {
				t.Fatalf("%s is listed %d times, and nobody sent it", digest, n)
			}
			if n != 1 {
				return false, fmt.Sprintf("%s is listed %d times", digest, n)
			}
		}
		return len(listed) == len(want), fmt.Sprintf("%d of %d are listed", len(listed), len(want))
	})
	// Objects that the killed gateway had read and not receipted are in the ledger.
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects >= senders*each && s.Unfinished[wire.CauseKilled] > 0
	})
}

// A gateway that drains finishes the object that it is in, gives all receipts,
// and ends the connection cleanly: senders lose nothing that was receipted, and
// know what to send again.
func TestDrainFramed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port, mutePort := testenv.FreePort(t), testenv.FreePort(t)
	mute := framed("mute", mutePort, wire.FramingLines)
	mute.Listeners[0].Receipt = wire.ReceiptClose
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, framed("camera", port, wire.FramingLengthPrefixed), mute))

	amid, between, silent := newDialog(t, port), newDialog(t, port), newDialog(t, mutePort)
	object := random(1, 2_000_000)
	amid.write(prefixed([]byte("before"), object)[:1_000_000])
	amid.stored([]byte("before"))
	between.write(prefixed([]byte("whole")))
	between.stored([]byte("whole"))
	silent.write([]byte("a line\n"))
	l.awaitLedger(t, "mute", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 1 })
	busy := make([][]byte, 100_000)
	for i := range busy {
		busy[i] = fmt.Appendf(nil, "object %d", i)
	}
	var receipts []wire.Receipt
	var busyErr error
	done, some := make(chan struct{}), make(chan struct{}, len(busy))
	go func() {
		defer close(done)
		receipts, busyErr = pipe(port, busy, func() { some <- struct{}{} })
	}()
	<-some

	g.signal(syscall.SIGTERM)
	between.ended()
	silent.wasReset() // a clean end before its own would pass for a receipt of what it sends meanwhile
	amid.write(prefixed([]byte("before"), object)[1_000_000:])
	amid.stored(object)
	amid.ended()
	<-done
	if err := <-g.done; err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
	if busyErr != nil && !errors.Is(busyErr, syscall.ECONNRESET) {
		t.Errorf("a sender that never stops: %v", busyErr)
	}
	owed(t, busy, receipts)
	announced := map[wire.Digest]int{}
	for _, n := range l.notices(t) {
		announced[n.Digest]++
	}
	for _, r := range receipts {
		if announced[r.Digest] != 1 {
			t.Errorf("%s has a receipt and is announced %d times", r.Digest, announced[r.Digest])
		}
	}
	s := l.ledger(t, "camera", wire.StepReceived)
	if s.Objects != uint64(len(announced)-1) || s.Objects != s.Acknowledged || len(s.Unfinished) != 0 {
		t.Errorf("after the drain the ledger says %+v, announced are %d", s, len(announced)-1)
	}
}

// The store is away for longer than an object may wait. The sender gets no line
// behind the last receipt, not even for a later object that is safe after all:
// it is reset, and what had a receipt is safe.
func TestFramedWithoutStore(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, framed("camera", port, wire.FramingLengthPrefixed))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	d := newDialog(t, port)
	d.write(prefixed([]byte("safe")))
	d.stored([]byte("safe"))
	l.minio.Pause()
	t.Cleanup(l.minio.Continue)
	d.write(prefixed([]byte("given up")))
	g.awaitUnsafe("1")
	time.Sleep(15 * time.Second) // so that the next is not given up together with it
	d.write(prefixed([]byte("stored late"), []byte("cut off"))[:20])
	g.awaitUnsafe("2")
	const refused = `substorm_gateway_refused_total{cause="StoreUnavailable",instrument="camera"}`
	await(t, "the first is given up", func() (bool, string) { v := g.metric(refused); return v == "1", v })
	l.minio.Continue()
	d.wasReset()
	l.archived(t, "camera", [][]byte{[]byte("safe"), []byte("stored late")}, verified)
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 2 && s.Acknowledged == 1 && s.Unfinished[wire.CauseStoreUnavailable] == 2
	})
}

// A gateway that is killed after it read all that was sent, and so has nothing
// unread for which the kernel would reset: the sender sees no clean end.
func TestKillOfFramedConnections(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	prefixedPort, linesPort := testenv.FreePort(t), testenv.FreePort(t)
	l.declare(t, framed("camera", prefixedPort, wire.FramingLengthPrefixed), framed("magnetometer", linesPort, wire.FramingLines))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	between, waiting, ended := newDialog(t, prefixedPort), newDialog(t, prefixedPort), newDialog(t, linesPort)
	between.write(prefixed([]byte("receipted")))
	between.stored([]byte("receipted"))
	l.minio.Pause()
	t.Cleanup(l.minio.Continue)
	waiting.write(prefixed([]byte("one"), []byte("two")))
	ended.write([]byte("a line"))
	ended.fin()
	g.awaitUnsafe("3")
	g.kill()
	for _, d := range []*dialog{between, waiting, ended} {
		d.wasReset()
	}
}

// A sender that is gone before its receipts: what it sent whole is stored and
// counts as received, not as acknowledged.
func TestFramedSenderGone(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, framed("camera", port, wire.FramingLines))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.minio.Pause()
	t.Cleanup(l.minio.Continue)
	d := newDialog(t, port)
	d.write([]byte("one\ntwo\nthree\nhalf of th"))
	g.awaitUnsafe("3")
	d.reset()
	const refused = `substorm_gateway_refused_total{cause="Reset",instrument="camera"}`
	l.minio.Continue()
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 3 && s.Acknowledged == 0 && s.Unfinished[wire.CauseReset] == 1
	})
	await(t, "the half is counted", func() (bool, string) { v := g.metric(refused); return v == "1", v })
	l.archived(t, "camera", [][]byte{[]byte("one"), []byte("two"), []byte("three")}, verified)
}

// Far more objects on their way than memory holds: each small one has a slab of
// its own. Senders are slowed down, all objects arrive, receipts keep their order.
func TestFramedBudget(t *testing.T) {
	const budget, senders, each = 32 << 20, 24, 100
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	g := l.start(t, gatewayOptions{flags: []string{"--memory-budget", strconv.Itoa(budget)}})
	camera := framed("camera", port, wire.FramingLengthPrefixed)
	camera.PackBelow = 0 // a pack takes objects out of their slabs, if it is quick enough
	l.awaitRevision(t, g.name, l.declare(t, camera))
	l.minio.Pause()
	t.Cleanup(l.minio.Continue)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			objects := manyObjects(s, each)
			receipts, err := pipe(port, objects, func() {})
			if err != nil {
				t.Errorf("sender %d: after %d receipts: %v", s, len(receipts), err)
			}
			if left := owed(t, objects, receipts); len(left) > 0 {
				t.Errorf("sender %d: %d objects have no receipt", s, len(left))
			}
		})
	}
	await(t, "connections wait for memory", func() (bool, string) {
		v := g.number("substorm_gateway_memory_waiting")
		return v > 0, fmt.Sprint(v)
	})
	if used, most := g.number("substorm_gateway_memory_used_bytes"), g.number("substorm_gateway_memory_budget_bytes"); used > most || most > budget {
		t.Errorf("%v bytes of memory in use of %v", used, most)
	}
	l.minio.Continue()
	wg.Wait()
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == senders*each && s.Acknowledged == s.Objects && len(s.Unfinished) == 0
	})
	await(t, "memory is given back", func() (bool, string) {
		v := g.metric("substorm_gateway_memory_used_bytes") + " " + g.metric("substorm_gateway_scratch_used_bytes")
		return v == "0 0", v
	})
	if g.metric(`substorm_gateway_pipeline_waits_total{instrument="camera"}`) == "" {
		t.Error("no connection had as many objects on their way as may be")
	}
	t.Logf("the process took %s at most", g.peakMemory())
}
