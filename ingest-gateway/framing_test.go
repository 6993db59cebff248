// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// noticesOf returns the notices of one instrument, in the order in which the
// objects were received.
func (l *lab) noticesOf(t *testing.T, instrument string) []wire.Notice {
	t.Helper()
	all := slices.DeleteFunc(l.notices(t), func(n wire.Notice) bool { return n.Instrument != instrument })
	slices.SortFunc(all, func(a, b wire.Notice) int { return a.ReceivedAt.Compare(b.ReceivedAt) })
	return all
}

// archived expects exactly these objects of an instrument, in the order of
// arrival, each with its completeness.
func (l *lab) archived(t *testing.T, instrument string, objects [][]byte, completeness ...wire.Completeness) {
	t.Helper()
	notices := l.noticesOf(t, instrument)
	if len(notices) != len(objects) {
		t.Fatalf("%d objects are announced, want %d", len(notices), len(objects))
	}
	kept := l.stored(t, instrument)
	for i, n := range notices {
		want := receiptOf(objects[i])
		if n.Digest != want.Digest || n.Size != want.Bytes || n.Completeness != completeness[min(i, len(completeness)-1)] {
			t.Errorf("object %d is announced as %s of %d bytes, %s", i, n.Digest, n.Size, n.Completeness)
		}
		digest, _ := l.digestOf(t, n.Record)
		if diff := cmp.Diff(n, kept[n.ID]); digest != want.Digest || diff != "" {
			t.Errorf("object %d in the bucket: %s, it says of itself (-notice +bucket):\n%s", i, digest, diff)
		}
	}
}

const (
	verified   = wire.CompletenessVerified
	unverified = wire.CompletenessUnverified
)

// Each framing on one gateway: what is an object, what is whole, what is refused.
func TestFramings(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	g := l.start(t, gatewayOptions{})
	change := func(e wire.InstrumentEntry, f func(*wire.InstrumentEntry)) wire.InstrumentEntry {
		f(&e)
		return e
	}
	jpeg := func(e *wire.InstrumentEntry) {
		e.Listeners[0].Expect = &wire.ExpectEntry{MinSize: 6, Magic: "ffd8ff", Trailer: "ffd9"}
	}
	small := func(e *wire.InstrumentEntry) { e.MaxObjectSize = 10_000 }
	mute := func(e *wire.InstrumentEntry) { e.Listeners[0].Receipt, e.MaxObjectSize = wire.ReceiptClose, 10_000 }
	entries := map[string]wire.InstrumentEntry{}
	var all []wire.InstrumentEntry
	add := func(name, framing string, changes ...func(*wire.InstrumentEntry)) {
		e := framed(name, testenv.FreePort(t), framing)
		for _, f := range changes {
			e = change(e, f)
		}
		entries[name], all = e, append(all, e)
	}
	add("prefixed", wire.FramingLengthPrefixed)
	add("prefixed-small", wire.FramingLengthPrefixed, small)
	add("prefixed-mute", wire.FramingLengthPrefixed, mute)
	add("prefixed-cut", wire.FramingLengthPrefixed)
	add("lines", wire.FramingLines)
	add("lines-small", wire.FramingLines, small)
	add("lines-mute", wire.FramingLines, mute)
	add("idle", wire.FramingIdle)
	add("idle-small", wire.FramingIdle, small)
	add("jpeg-close", wire.FramingUntilClose, jpeg)
	add("jpeg-prefixed", wire.FramingLengthPrefixed, jpeg)
	l.awaitRevision(t, g.name, l.declare(t, all...))
	open := func(t *testing.T, name string) *dialog { return newDialog(t, int(entries[name].Listeners[0].Port)) }

	t.Run("LengthPrefixed", func(t *testing.T) {
		var objects [][]byte
		for i := range 150 {
			objects = append(objects, random(uint64(i), 1+(i*i*37)%90_000))
		}
		objects = append(objects, random(200, 17<<20), random(201, 5)) // one that goes in parts, and overtakes no other object
		d := open(t, "prefixed")
		go func() { // receipts are not read meanwhile
			for _, o := range objects {
				_, _ = d.conn.Write(prefixed(nil, o)) // a keep-alive before each
			}
			_ = d.conn.CloseWrite()
		}()
		d.stored(objects...)
		d.ended()
		l.archived(t, "prefixed", objects, verified)
		l.awaitLedger(t, "prefixed", wire.StepReceived, func(s wire.Totals) bool {
			return s.Objects == uint64(len(objects)) && s.Acknowledged == s.Objects && len(s.Unfinished) == 0
		})
	})
	t.Run("LengthPrefixed, byte by byte", func(t *testing.T) {
		d := open(t, "prefixed-cut")
		object := []byte("a slow one")
		for _, b := range prefixed(object, nil) {
			d.write([]byte{b})
			time.Sleep(time.Millisecond) // so that each is read by itself
		}
		d.stored(object)
		d.write(prefixed([]byte("cut off"))[:9])
		d.fin()
		d.refused(wire.CauseTruncated)
		d.ended()
		d = open(t, "prefixed-cut")
		d.write(append(prefixed([]byte("another")), 0, 0))
		d.fin()
		d.stored([]byte("another"))
		d.refused(wire.CauseTruncated)
		d.ended()
		d = open(t, "prefixed-cut")
		d.write(prefixed(random(1, 300_000))[:200_000])
		d.reset()
		l.archived(t, "prefixed-cut", [][]byte{object, []byte("another")}, verified)
		l.awaitLedger(t, "prefixed-cut", wire.StepReceived, func(s wire.Totals) bool {
			return s.Objects == 2 && s.Unfinished[wire.CauseTruncated] == 2 && s.Unfinished[wire.CauseReset] == 1
		})
	})
	t.Run("LengthPrefixed, too large", func(t *testing.T) {
		d := open(t, "prefixed-small")
		fits := random(2, 10_000)
		d.write(prefixed(fits, random(3, 10_001), random(4, 1_000_000)))
		d.stored(fits)
		d.refused(wire.CauseObjectTooLarge)
		d.ended()
		l.archived(t, "prefixed-small", [][]byte{fits}, verified)
	})
	t.Run("Lines", func(t *testing.T) {
		long := bytes.ReplaceAll(random(5, 300_000), []byte{'\n'}, []byte{' '})
		want := [][]byte{[]byte("first"), []byte("second\r"), long, []byte("x"), []byte("the last")}
		d := open(t, "lines")
		d.write([]byte("\n\r\n"))
		d.write(bytes.Join([][]byte{want[0], want[1], nil, long, []byte("x"), want[4]}, []byte{'\n'}))
		d.fin()
		d.stored(want...)
		d.ended()
		l.archived(t, "lines", want, verified, verified, verified, verified, unverified)
	})
	t.Run("Lines, too long", func(t *testing.T) {
		d := open(t, "lines-small")
		d.write([]byte("first\n" + strings.Repeat("x", 10_001) + "\nsecond\n" + strings.Repeat("y", 1_000_000)))
		d.stored([]byte("first"))
		d.refused(wire.CauseObjectTooLarge)
		d.stored([]byte("second"))
		d.refused(wire.CauseObjectTooLarge)
		d.write([]byte("zzz\nthird\n"))
		d.stored([]byte("third"))
		d.fin()
		d.ended()
		l.archived(t, "lines-small", [][]byte{[]byte("first"), []byte("second"), []byte("third")}, verified)
	})
	t.Run("Idle", func(t *testing.T) {
		want := [][]byte{random(6, 1000), random(7, 200_000), random(8, 1)}
		d := open(t, "idle")
		for _, o := range want[:2] {
			d.write(o)
			d.stored(o)
		}
		d.write(want[2])
		d.fin()
		d.stored(want[2])
		d.ended()
		l.archived(t, "idle", want, unverified)
	})
	t.Run("Idle, too large", func(t *testing.T) {
		d := open(t, "idle-small")
		d.write(random(9, 50_000))
		d.refused(wire.CauseObjectTooLarge)
		time.Sleep(2 * time.Second) // what follows at once would be the same object
		d.write([]byte("next"))
		d.stored([]byte("next"))
		d.fin()
		d.ended()
		l.archived(t, "idle-small", [][]byte{[]byte("next")}, unverified)
	})
	t.Run("no object at all", func(t *testing.T) {
		before := g.number(`substorm_gateway_refused_total{cause="Empty",instrument="lines"}`)
		for _, name := range []string{"lines", "idle", "prefixed"} {
			d := open(t, name)
			d.fin()
			d.ended()
		}
		if n := g.number(`substorm_gateway_refused_total{cause="Empty",instrument="lines"}`); n != before {
			t.Error("a connection without an object is counted as one")
		}
	})
	t.Run("expect", func(t *testing.T) {
		whole, half := []byte("\xff\xd8\xffpicture\xff\xd9"), []byte("\xff\xd8\xffpict")
		for _, o := range [][]byte{whole, half} {
			mustSend(t, int(entries["jpeg-close"].Listeners[0].Port), o)
		}
		l.archived(t, "jpeg-close", [][]byte{whole, half}, verified, unverified)
		d := open(t, "jpeg-prefixed")
		d.write(prefixed(half, whole))
		d.stored(half, whole)
		l.archived(t, "jpeg-prefixed", [][]byte{half, whole}, unverified, verified)
		for _, name := range []string{"jpeg-close", "jpeg-prefixed"} {
			if n := g.metric(fmt.Sprintf("substorm_gateway_unexpected_objects_total{instrument=%q}", name)); n != "1" {
				t.Errorf("%s: %s objects are counted as not what is expected", name, n)
			}
		}
	})
	t.Run("receipt Close", func(t *testing.T) {
		want := [][]byte{[]byte("one"), []byte("two")}
		d := open(t, "prefixed-mute")
		d.write(prefixed(want...))
		d.fin()
		d.ended()
		l.archived(t, "prefixed-mute", want, verified)
		d = open(t, "lines-mute")
		d.write([]byte("one\n" + strings.Repeat("x", 10_001) + "\ntwo\n"))
		d.wasReset()
		l.awaitLedger(t, "lines-mute", wire.StepReceived, func(s wire.Totals) bool {
			return s.Objects >= 1 && s.Unfinished[wire.CauseObjectTooLarge] == 1 && s.Acknowledged == 0
		})
	})
	await(t, "no memory in use", func() (bool, string) {
		v := g.metric("substorm_gateway_memory_used_bytes") + " " + g.metric("substorm_gateway_scratch_used_bytes")
		return v == "0 0", v
	})
}
