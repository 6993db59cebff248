// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Connections whose senders are slow or silent, or whose Instrument is declared again while they are open.
func TestFramedConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	g := l.start(t, gatewayOptions{})
	timed := func(name, framing string, idle, age, cadence int64) wire.InstrumentEntry {
		e := framed(name, testenv.FreePort(t), framing)
		e.Listeners[0].IdleTimeoutMillis, e.Listeners[0].MaxAgeMillis, e.CadenceMillis = idle, age, cadence
		return e
	}
	const long = 3_600_000
	entries := []wire.InstrumentEntry{
		timed("stalls", wire.FramingLines, 300, long, 60_000),
		timed("stalls-in-prefix", wire.FramingLengthPrefixed, 300, long, 60_000),
		timed("trickles", wire.FramingLines, long, 500, 60_000),
		timed("trickles-on", wire.FramingIdle, long, 1500, 60_000),
		timed("never-ends", wire.FramingLines, long, 500, 60_000),
		timed("quiet", wire.FramingLengthPrefixed, 300, 300, 60_000),
		timed("gone", wire.FramingLengthPrefixed, 300, long, 100),
		timed("changes", wire.FramingLines, 60_000, long, 60_000),
	}
	entries[4].MaxObjectSize = 1000
	port := map[string]int{}
	for _, e := range entries {
		port[e.Instrument] = int(e.Listeners[0].Port)
	}
	l.awaitRevision(t, g.name, l.declare(t, entries...))
	trickle := func(t *testing.T, d *dialog) {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					_, _ = d.conn.Write([]byte{'x'})
				}
			}
		})
		t.Cleanup(func() { close(stop); wg.Wait() })
	}
	unfinished := func(t *testing.T, name string, cause wire.Cause, objects uint64) {
		l.awaitLedger(t, name, wire.StepReceived, func(s wire.Totals) bool {
			return s.Objects == objects && len(s.Unfinished) == 1 && s.Unfinished[cause] == 1
		})
	}

	t.Run("stalls within a line", func(t *testing.T) {
		d := newDialog(t, port["stalls"])
		d.write([]byte("whole\nhal"))
		d.stored([]byte("whole"))
		d.refused(wire.CauseStalled)
		unfinished(t, "stalls", wire.CauseStalled, 1)
	})
	t.Run("stalls within a length", func(t *testing.T) {
		d := newDialog(t, port["stalls-in-prefix"])
		d.write([]byte{0, 0})
		d.refused(wire.CauseStalled)
		unfinished(t, "stalls-in-prefix", wire.CauseStalled, 0)
	})
	t.Run("trickles a line", func(t *testing.T) {
		d := newDialog(t, port["trickles"])
		trickle(t, d)
		d.refused(wire.CauseTooOld)
		unfinished(t, "trickles", wire.CauseTooOld, 0)
	})
	t.Run("trickles and never pauses", func(t *testing.T) {
		d := newDialog(t, port["trickles-on"])
		trickle(t, d)
		// A machine that stops for longer than the pause may end objects before.
		for r, err := d.line(); r.Refused != wire.CauseTooOld; r, err = d.line() {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("never ends a line that is refused", func(t *testing.T) {
		d := newDialog(t, port["never-ends"])
		d.write(bytes.Repeat([]byte{'x'}, 2000))
		trickle(t, d)
		d.refused(wire.CauseObjectTooLarge)
		d.ended()
		unfinished(t, "never-ends", wire.CauseObjectTooLarge, 0)
	})
	t.Run("silent between objects", func(t *testing.T) {
		d := newDialog(t, port["quiet"])
		for i := range 3 {
			object := random(uint64(i), 1000)
			d.write(prefixed(object))
			d.stored(object)
			time.Sleep(time.Second) // longer than idleTimeout and maxAge, shorter than the cadence
		}
		d.fin()
		d.ended()
		l.awaitLedger(t, "quiet", wire.StepReceived, func(s wire.Totals) bool {
			return s.Objects == 3 && s.Acknowledged == 3 && len(s.Unfinished) == 0
		})
	})
	t.Run("silent for longer than the cadence allows", func(t *testing.T) {
		d := newDialog(t, port["gone"])
		d.write(prefixed([]byte("the last")))
		d.stored([]byte("the last"))
		d.ended()
		if s := l.ledger(t, "gone", wire.StepReceived); len(s.Unfinished) != 0 {
			t.Errorf("silence is counted as %v", s.Unfinished)
		}
	})
	t.Run("the instrument changes", func(t *testing.T) {
		d := newDialog(t, port["changes"])
		d.write([]byte("before\n"))
		d.stored([]byte("before"))
		entries[7].MaxObjectSize = 10 // applies to open connections, and ends none
		l.awaitRevision(t, g.name, l.declare(t, entries...))
		d.write([]byte("far too long\nshort\n"))
		d.refused(wire.CauseObjectTooLarge)
		d.stored([]byte("short"))
		entries[7].Retired = true
		l.awaitRevision(t, g.name, l.declare(t, entries...))
		d.write([]byte("after\n"))
		d.ended()
		d = newDialog(t, port["changes"])
		d.write([]byte("after\n"))
		d.refused(wire.CauseRetired)
		l.archived(t, "changes", [][]byte{[]byte("before"), []byte("short")}, verified)
	})
}
