// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// expectRefused checks that a refusal was counted, in metrics and ledger, and logged once with the
// sender, and that nothing of it is in the archive.
func (l *lab) expectRefused(t *testing.T, g *gateway, instrument string, cause wire.Cause) {
	t.Helper()
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", cause, instrument)
	await(t, series, func() (bool, string) { v := g.metric(series); return v == "1", v })
	l.awaitLedger(t, instrument, wire.StepReceived, func(s wire.Totals) bool { return s.Unfinished[cause] == 1 && s.Objects == 0 })
	lines := 0
	for line := range strings.Lines(g.readLog()) {
		if strings.Contains(line, `"msg":"no receipt"`) && strings.Contains(line, fmt.Sprintf(`"instrument":%q,"cause":%q,"source":"127.0.0.1:`, instrument, cause)) {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d log lines about the refusal", lines)
	}
	if stored, staged := l.stored(t, instrument), l.keys(t, wire.StagingPrefix(l.site)); len(stored)+len(staged) != 0 {
		t.Errorf("the archive holds %v, staging %v", stored, staged)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	instrument := func(name string, change func(*wire.InstrumentEntry)) wire.InstrumentEntry {
		e := tcpInstrument(name, testenv.FreePort(t))
		change(&e)
		return e
	}
	entries := []wire.InstrumentEntry{
		instrument("elsewhere", func(e *wire.InstrumentEntry) { e.Listeners[0].Sources = []string{"192.0.2.0/24", "2001:db8::/32"} }),
		instrument("retired", func(e *wire.InstrumentEntry) { e.Retired = true }),
		instrument("small", func(e *wire.InstrumentEntry) { e.MaxObjectSize = 100_000 }),
		instrument("large", func(*wire.InstrumentEntry) {}),
		instrument("crowded", func(e *wire.InstrumentEntry) { e.MaxConnections = 1 }),
		instrument("stalls", func(e *wire.InstrumentEntry) { e.Listeners[0].IdleTimeoutMillis = 300 }),
		instrument("trickles", func(e *wire.InstrumentEntry) { e.Listeners[0].MaxAgeMillis = 500 }),
		instrument("empty", func(*wire.InstrumentEntry) {}),
		instrument("resets", func(*wire.InstrumentEntry) {}),
		instrument("mute", func(e *wire.InstrumentEntry) { e.Listeners[0].Receipt = wire.ReceiptClose; e.MaxObjectSize = 1000 }),
	}
	port := map[string]int{}
	for _, e := range entries {
		port[e.Instrument] = int(e.Listeners[0].Port)
	}
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, entries...))
	refused := func(t *testing.T, a answer, cause wire.Cause) {
		t.Helper()
		if want := (wire.Receipt{Refused: cause}); a.receipt(t) != want {
			t.Fatalf("answer %q, want %q", a.line, want.Line())
		}
	}

	t.Run("unknown source", func(t *testing.T) {
		refused(t, send(t, port["elsewhere"], random(1, 1000)), wire.CauseUnknownSource)
		l.expectRefused(t, g, wire.UnknownInstrument, wire.CauseUnknownSource)
	})
	t.Run("wrong port", func(t *testing.T) {
		_, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port that no instrument has: %v", err)
		}
	})
	t.Run("retired", func(t *testing.T) {
		refused(t, send(t, port["retired"], random(2, 1000)), wire.CauseRetired)
		l.expectRefused(t, g, "retired", wire.CauseRetired)
	})
	t.Run("too large", func(t *testing.T) {
		// Far more than the sockets' buffers hold: the sender is still writing
		// when it is refused, and must be able to read why.
		refused(t, send(t, port["small"], random(3, 20<<20)), wire.CauseObjectTooLarge)
		l.expectRefused(t, g, "small", wire.CauseObjectTooLarge)
	})
	t.Run("too many connections", func(t *testing.T) {
		first := dial(t, port["crowded"])
		defer first.Close()
		await(t, "the first connection is open", func() (bool, string) {
			v := g.metric(`substorm_gateway_connections{instrument="crowded"}`)
			return v == "1", v
		})
		refused(t, send(t, port["crowded"], random(4, 1000)), wire.CauseTooManyConnections)
		l.expectRefused(t, g, "crowded", wire.CauseTooManyConnections)
	})
	t.Run("stalled", func(t *testing.T) {
		conn := dial(t, port["stalls"])
		defer conn.Close()
		if _, err := conn.Write(random(5, 200_000)); err != nil {
			t.Fatal(err)
		}
		refused(t, hear(conn), wire.CauseStalled)
		_ = conn.Close()
		l.expectRefused(t, g, "stalls", wire.CauseStalled)
	})
	t.Run("too old", func(t *testing.T) {
		conn := dial(t, port["trickles"])
		defer conn.Close()
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					_, _ = conn.Write([]byte{1})
				}
			}
		}()
		answer := hear(conn)
		close(stop)
		<-done
		refused(t, answer, wire.CauseTooOld)
		_ = conn.Close()
		l.expectRefused(t, g, "trickles", wire.CauseTooOld)
	})
	t.Run("empty", func(t *testing.T) {
		refused(t, send(t, port["empty"], nil), wire.CauseEmpty)
		l.expectRefused(t, g, "empty", wire.CauseEmpty)
	})
	t.Run("reset by the sender", func(t *testing.T) {
		conn := dial(t, port["resets"])
		if _, err := conn.Write(random(6, 300_000)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetLinger(0)
		_ = conn.Close()
		l.expectRefused(t, g, "resets", wire.CauseReset)
	})
	t.Run("reset after parts were uploaded", func(t *testing.T) {
		conn := dial(t, port["large"])
		if _, err := conn.Write(random(7, 40<<20)); err != nil {
			t.Fatal(err)
		}
		await(t, "a part is stored", func() (bool, string) {
			v := g.metric(`substorm_gateway_store_seconds_count{operation="part"}`)
			return v != "" && v != "0", v
		})
		_ = conn.SetLinger(0)
		_ = conn.Close()
		l.expectRefused(t, g, "large", wire.CauseReset)
		if log := g.readLog(); strings.Contains(log, "staging is not cleaned up") {
			t.Error("staging was not cleaned up")
		}
	})
	t.Run("receipt Close", func(t *testing.T) {
		if a := send(t, port["mute"], random(8, 900)); a.line != "" || a.err != nil {
			t.Errorf("a stored object is answered with %q, %v", a.line, a.err)
		}
		l.awaitLedger(t, "mute", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 1 && s.Acknowledged == 0 })
		if a := send(t, port["mute"], random(9, 1100)); a.line != "" || !isReset(a.err) {
			t.Errorf("a refused object is answered with %q, %v", a.line, a.err)
		}
	})
	t.Run("memory is given back", func(t *testing.T) {
		await(t, "no memory in use", func() (bool, string) {
			v := g.metric("substorm_gateway_memory_used_bytes") + " " + g.metric("substorm_gateway_scratch_used_bytes")
			return v == "0 0", v
		})
	})
}

// A flood of refusals neither fills the log nor goes uncounted.
func TestRefusalFlood(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	e := tcpInstrument("elsewhere", testenv.FreePort(t))
	e.Listeners[0].Sources = []string{"192.0.2.0/24"}
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, e))
	const flood = 500
	for range flood {
		conn := dial(t, int(e.Listeners[0].Port))
		_ = conn.Close()
	}
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseUnknownSource, wire.UnknownInstrument)
	await(t, "all are counted", func() (bool, string) { v := g.metric(series); return v == fmt.Sprint(flood), v })
	if lines := strings.Count(g.readLog(), `"msg":"no receipt"`); lines == 0 || lines > flood/5 {
		t.Errorf("%d of %d refusals are logged", lines, flood)
	}
}
