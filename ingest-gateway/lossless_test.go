// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// smallVolume is a file system of so many bytes.
func smallVolume(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("mount a tmpfs: %v: it needs CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return filepath.Join(dir, "volume")
}

// Store and JetStream are away and the disk is full: TCP resets, HTTP answers
// 503, UDP drops and counts; nothing that was receipted is lost.
func TestDiskFull(outer *testing.T) {
	outer.Parallel()
	t := outer
	dir := smallVolume(t, 24<<20)
	l := newLabAlone(t)
	tcpPort, httpPort, udpPort := testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)
	camera := spoolingCamera(tcpPort, "StoredOrSpooled")
	web := httpInstrument("web", httpPort)
	web.Acknowledge = "StoredOrSpooled"
	mag := tcpInstrument("mag", udpPort)
	mag.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(udpPort), Channel: "raw"}}
	revision := l.declare(t, camera, web, mag)
	// The spool may take more than there is: it is the disk that is full.
	g := l.start(t, gatewayOptions{dir: dir, flags: []string{"--spool-size", "1000000000", "--memory-budget", "8388608"}})
	t.Cleanup(g.kill) // before the volume goes
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, httpPort)
	l.minio.Kill()
	l.nats.Kill()

	var s sent
	refused := 0
	for seed := uint64(0); refused < 5; seed++ {
		object := random(seed, 700_000)
		a := send(t, tcpPort, object)
		switch {
		case a.err == nil && a.line != "":
			if r := a.receipt(t); r.Digest != sha256.Sum256(object) {
				t.Fatalf("receipt %+v", r)
			}
			s.receipted(object)
		case isReset(a.err):
			refused++
		default:
			t.Fatalf("who finds the disk full hears %q, %v", a.line, a.err)
		}
		if seed > 200 {
			t.Fatal("the disk does not get full")
		}
	}
	object := random(1000, 700_000)
	put(in(httpPort, "web", "late.jpg"), object).wantRefusal(t, 503, wire.CauseNoSpace)
	datagrams := uint64(0)
	conn, err := net.Dial("udp", loopback(udpPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say := func(n int) {
		for range n {
			if _, err := conn.Write(binary.BigEndian.AppendUint64(make([]byte, 1200), datagrams)); err == nil {
				datagrams++
			}
		}
	}
	await(t, "telemetry is dropped, and counted", func() (bool, string) {
		say(500)
		_, text := g.get("/metrics")
		i := bytes.Index([]byte(text), []byte(`substorm_gateway_datagrams_dropped_total`))
		return bytes.Contains([]byte(text), []byte(`cause="Backlog"`)), text[max(0, i):max(0, min(len(text), i+300))]
	})
	if len(s.objects) == 0 || g.number("substorm_gateway_spool_objects") != float64(len(s.objects)) {
		t.Errorf("the spool has %v of %d", g.number("substorm_gateway_spool_objects"), len(s.objects))
	}

	l.nats.Start()
	l.minio.Start()
	l.awaitDrained(t, g, &s)
	l.awaitLedger(t, "camera", wire.StepReceived, func(totals wire.Totals) bool {
		return totals.Unfinished[wire.CauseNoSpace] == uint64(refused)
	})
	put(in(httpPort, "web", "late.jpg"), object).wantReceipt(t, 201, object)
	l.awaitLedger(t, "mag", wire.StepReceived, func(totals wire.Totals) bool {
		say(1) // what the kernel dropped is known with the next one
		accounted := totals.Datagrams
		for _, n := range totals.Dropped {
			accounted += n
		}
		return totals.Dropped[wire.CauseBacklog] > 0 && accounted+10 >= datagrams && totals.Unknown == 0
	})
	l.awaitLedger(t, "mag", wire.StepReceived, func(totals wire.Totals) bool {
		accounted := totals.Datagrams
		for _, n := range totals.Dropped {
			accounted += n
		}
		return accounted == datagrams
	})
}

// An object that was archived nine days ago and is sent again gets its receipt, and is
// marked as a duplicate; beyond the window of thirty days the second copy stays.
func TestDuplicateAfterNineDays(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	camera := tcpInstrument("camera", port)
	camera.PackBelow = 0
	revision := l.declare(t, camera)
	nine, forty := random(1, 100_000), random(2, 100_000)
	old := map[wire.Digest]string{}
	for object, ago := range map[*[]byte]int{&nine: 9, &forty: 40} {
		r := l.archivedAt(t, *object, time.Now().UTC().AddDate(0, 0, -ago))
		old[r.Digest] = r.Key
	}
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	mustSend(t, port, nine)
	mustSend(t, port, forty)
	await(t, "the duplicate of nine days ago is marked as a duplicate, that of forty days stays", func() (bool, string) {
		listed := l.listing(t, "camera")
		keys := l.keys(t, wire.InstrumentPrefix(l.site, "camera"))
		return listed[sha256.Sum256(nine)] == 1 && listed[sha256.Sum256(forty)] == 2 && len(keys) == 3, fmt.Sprint(listed, keys)
	})
	if _, err := l.store.Head(t.Context(), old[sha256.Sum256(nine)]); err != nil {
		t.Errorf("the first one is gone: %v", err)
	}
	// No ledger has those of then: they are counted from the manifests.
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 4 && s.Acknowledged == 2 })
	l.awaitLedger(t, "camera", wire.StepDuplicates, func(s wire.Totals) bool {
		return s.Objects == 1 && s.Digest == sha256.Sum256(nine)
	})
}

// archivedAt archives an object as a gateway did then: in the bucket, and in the
// day's manifest.
func (l *lab) archivedAt(t *testing.T, object []byte, at time.Time) wire.Record {
	t.Helper()
	digest := wire.Digest(sha256.Sum256(object))
	key := wire.RawKey(l.site, "camera", at, digest)
	r := wire.Record{
		ID: key, Key: key, Size: int64(len(object)), Digest: digest, MediaType: "image/jpeg", State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessUnverified,
		Source: "192.0.2.7:40001", Gateway: "north-7", Incarnation: "gone",
	}
	metadata, err := wire.ObjectMetadata(wire.Notice{Site: l.site, Instrument: "camera", Record: r})
	if err == nil {
		err = l.store.Put(t.Context(), key, bytes.NewReader(object), r.Size, objectstore.PutOptions{Metadata: metadata, Digest: digest, CreateOnly: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	day := wire.DayOf(at)
	m := wire.Manifest{Header: wire.ManifestHeader{Site: l.site, Instrument: "camera", Day: day, Writer: "north-7", Incarnation: "gone"}, Records: []wire.Record{r}}
	data, err := m.Encode()
	if err == nil {
		err = l.store.Put(t.Context(), wire.ManifestPartKey(l.site, "camera", day, 1), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The clock of the machine is set back by forty seconds while the gateway is down: receive times
// continue from the last one. A larger step is followed, and marked (TestClockIsSetForward of
// package store).
func TestClockSteppedBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, tcpInstrument("camera", port))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	mustSend(t, port, random(1, 1000))
	g.kill()
	file := filepath.Join(dir, "clock")
	b, err := os.ReadFile(file)
	if err != nil || len(b) != 8 {
		t.Fatal(b, err)
	}
	told := time.Unix(0, int64(binary.LittleEndian.Uint64(b))).UTC()
	if d := time.Since(told); d < 0 || d > time.Hour {
		t.Fatalf("the file says %v", told)
	}
	// As if the last incarnation had run with a clock that was ahead of ours.
	ahead := told.Add(40 * time.Second)
	if err := os.WriteFile(file, binary.LittleEndian.AppendUint64(nil, uint64(ahead.UnixNano())), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(t, gatewayOptions{dir: dir})
	for seed := range uint64(3) {
		mustSend(t, port, random(10+seed, 1000))
	}
	notices := l.notices(t)
	if len(notices) != 4 {
		t.Fatalf("%d notices", len(notices))
	}
	for _, n := range notices[1:] {
		if !n.ReceivedAt.After(ahead) || n.ReceivedAt.After(ahead.Add(time.Minute)) {
			t.Errorf("received at %v, and the last one before at %v", n.ReceivedAt, ahead)
		}
	}
}

// Hundreds of senders that send a byte now and then, with little memory, keep no other sender from
// sending, and each ends as its limits say.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	slowPort, port := testenv.FreePort(t), testenv.FreePort(t)
	slow := tcpInstrument("slow", slowPort)
	slow.Listeners[0].MaxAgeMillis = 8000
	revision := l.declare(t, slow, tcpInstrument("camera", port))
	g := l.start(t, gatewayOptions{flags: []string{"--memory-budget", "4194304"}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	const many = 300
	var senders sync.WaitGroup
	ends := make(chan answer, many)
	for range many {
		conn := dial(t, slowPort)
		senders.Go(func() {
			defer conn.Close()
			done := make(chan struct{})
			go func() {
				ends <- hear(conn)
				close(done)
			}()
			for {
				_, _ = conn.Write([]byte{'x'})
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	var s sent
	for seed := range uint64(30) {
		object := random(seed, 400_000)
		mustSend(t, port, object)
		s.receipted(object)
	}
	l.awaitDrained(t, g, &s)
	senders.Wait()
	for range many {
		if a := <-ends; a.err == nil {
			if want := (wire.Receipt{Refused: wire.CauseTooOld}); a.receipt(t) != want {
				t.Errorf("a slow sender hears %q", a.line)
			}
		} else if !isReset(a.err) && !errors.Is(a.err, os.ErrDeadlineExceeded) {
			t.Errorf("a slow sender hears %q, %v", a.line, a.err)
		}
	}
	l.awaitLedger(t, "slow", wire.StepReceived, func(totals wire.Totals) bool {
		return totals.Objects == 0 && totals.Unfinished[wire.CauseTooOld] == many
	})
}
