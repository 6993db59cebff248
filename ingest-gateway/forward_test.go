// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// rtemp is an old server: it appends what connections bring to what it has, and
// drops what a reset cut off.
type rtemp struct {
	listener net.Listener
	// hold keeps it from reading.
	hold sync.RWMutex

	mu     sync.Mutex
	pieces [][]byte
}

func newRTEMP(t *testing.T) *rtemp {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rtemp{listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *rtemp) serve(conn net.Conn) {
	defer conn.Close()
	s.hold.RLock()
	defer s.hold.RUnlock()
	data, err := io.ReadAll(conn)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pieces = append(s.pieces, data)
}

// holds says whether it has exactly some pieces, in their order. One that follows
// itself came twice, as the last one before a death may.
func (s *rtemp) holds(objects [][]byte) (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	for n, piece := range s.pieces {
		switch {
		case i < len(objects) && bytes.Equal(piece, objects[i]):
			i++
		case n > 0 && bytes.Equal(piece, s.pieces[n-1]):
		default:
			return false, fmt.Sprintf("piece %d of %d bytes is none that is expected after %d", n, len(piece), i)
		}
	}
	return i == len(objects), fmt.Sprintf("%d of %d objects in %d pieces", i, len(objects), len(s.pieces))
}

// An old server hangs without reading, and the archivist that sends it the copy is
// killed. Senders get their receipts all the while, and in the end the old server
// has what they sent, byte for byte and in order. So does the legacy tree.
func TestForwardBehindTheReceipt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	old := newRTEMP(t)
	port := testenv.FreePort(t)
	camera := tcpInstrument("camera", port)
	camera.Station, camera.Naming = "rank", "{year}/{month}/{day}/{station}_{hour}{minute}{second}.{millisecond}-{digest:8}.jpg"
	camera.Forward = &wire.ForwardEntry{Address: old.listener.Addr().String(), Protocol: wire.ProtocolTCP, Until: time.Now().Add(time.Hour)}
	revision := l.declare(t, camera)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	backlog := func(want string) func() (bool, string) {
		return func() (bool, string) {
			_, text := get(l.archivist.URL("/metrics"))
			v := seriesOf(text, `substorm_forward_backlog_items{instrument="camera"}`)
			return v == want, v
		}
	}
	var objects [][]byte
	send := func(sizes ...int) {
		for _, size := range sizes {
			object := random(uint64(len(objects)+1), size)
			mustSend(t, port, object)
			objects = append(objects, object)
		}
	}
	send(1000, 70_000, 5_000_000)
	await(t, "the old server has the copy", func() (bool, string) { return old.holds(objects) })

	old.hold.Lock()
	send(20_000_000) // more than the sockets between them hold
	for range 20 {
		send(1000)
	}
	await(t, "the backlog is in the metrics", backlog("21"))
	l.archivist.Kill()
	l.archivist = l.newArchivist("archivist-1")
	send(2000, 300_000)
	await(t, "its successor sends the copy", backlog("23"))
	old.hold.Unlock()
	await(t, "the old server has all", func() (bool, string) { return old.holds(objects) })
	await(t, "the archive lists all", func() (bool, string) {
		n := len(l.listing(t, "camera"))
		return n == len(objects), fmt.Sprint(n)
	})

	var want, got bytes.Buffer
	for _, object := range objects {
		want.Write(object)
	}
	n := l.notices(t)[0]
	legacy, ok := wire.LegacyOf(n.Record)
	if !ok || int(legacy.Port) != port || !legacy.Address.IsLoopback() {
		t.Fatalf("an object came from %q to port %d", n.Source, n.Port)
	}
	for n, err := range objectpath.Legacy(t.Context(), l.store, l.site, legacy, []string{"camera"}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := objectpath.Append(t.Context(), l.store, n.Record, &got); err != nil {
			t.Fatal(err)
		}
	}
	last := l.notices(t)[len(objects)-1]
	if wire.DayOf(n.ReceivedAt) == wire.DayOf(last.ReceivedAt) && sha256.Sum256(got.Bytes()) != sha256.Sum256(want.Bytes()) {
		t.Errorf("the legacy tree holds %d bytes, not the %d that were sent", got.Len(), want.Len())
	}
	in, err := objectpath.OfEntry(camera)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(last.Path, "/rank_") {
		t.Errorf("published under %q", last.Path)
	}
	if found, err := objectpath.Find(t.Context(), l.store, nil, l.site, last.Path, []objectpath.Instrument{in}); err != nil || found.ID != last.ID {
		t.Errorf("under %q is %s, %v, want %s", last.Path, found.ID, err, last.ID)
	}
}

// Lines that come faster than they are stored are copied as they came: all that
// one connection brings, byte for byte.
func TestForwardedLines(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	old := newRTEMP(t)
	port := testenv.FreePort(t)
	sensor := framed("sensor", port, wire.FramingLines)
	sensor.RepeatWindowMillis = 0
	sensor.Forward = &wire.ForwardEntry{Address: old.listener.Addr().String(), Protocol: wire.ProtocolTCP, Until: time.Now().Add(time.Hour)}
	revision := l.declare(t, sensor)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	var text bytes.Buffer
	var objects [][]byte
	for i := range 1000 {
		line := fmt.Appendf(nil, "%d;%x", i, random(uint64(i), i%300))
		objects = append(objects, line)
		text.Write(append(line, '\n'))
	}
	d := newDialog(t, port)
	d.write(text.Bytes())
	d.stored(objects...)
	await(t, "the old server has all lines in their order", func() (bool, string) {
		old.mu.Lock()
		defer old.mu.Unlock()
		got := bytes.Join(old.pieces, nil)
		return bytes.Equal(got, text.Bytes()), fmt.Sprintf("%d bytes of %d in %d connections", len(got), text.Len(), len(old.pieces))
	})
}

// Objects say what stood around them on their connection.
func TestFramingIsNoted(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ports := map[string]int{}
	var entries []wire.InstrumentEntry
	for name, framing := range map[string]string{"lines": wire.FramingLines, "lengths": wire.FramingLengthPrefixed, "closes": wire.FramingUntilClose} {
		ports[name] = testenv.FreePort(t)
		entries = append(entries, framed(name, ports[name], framing))
	}
	revision := l.declare(t, entries...)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	whole, cut := []byte("a line"), []byte("and its end")
	d := newDialog(t, ports["lines"])
	d.write([]byte("a line\nand its end"))
	d.fin()
	d.stored(whole, cut)
	d.ended()
	d = newDialog(t, ports["lengths"])
	d.write(prefixed(whole))
	d.fin()
	d.stored(whole)
	d.ended()
	mustSend(t, ports["closes"], whole)
	for instrument, want := range map[string][]string{"lines": {wire.FramingLines, ""}, "lengths": {wire.FramingLengthPrefixed}, "closes": {""}} {
		for i, n := range l.noticesOf(t, instrument) {
			if n.Framing != want[i] || int(n.Port) != ports[instrument] {
				t.Errorf("%s, object %d: framing %q to port %d, want %q to %d", instrument, i, n.Framing, n.Port, want[i], ports[instrument])
			}
		}
	}
}
