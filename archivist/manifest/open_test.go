// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// Compressed records are read back unchanged and in their order, and take at most a quarter of the size of their lines.
func TestCompress(t *testing.T) {
	t.Parallel()
	w := &Writer{days: map[dayKey]*day{}}
	days := make([]*day, 40)
	want := make([][]wire.Record, len(days))
	for i := range days {
		days[i] = &day{dayKey: dayKey{fmt.Sprintf("mag-%02d", i), "2026-11-18"}}
		w.days[days[i].dayKey] = days[i]
	}
	at := time.Date(2026, 11, 18, 12, 0, 0, 987654321, time.UTC)
	closes := 0
	for n := range 3*maxRaw + 17 {
		i := n % len(days)
		digest := wire.Digest(sha256.Sum256(fmt.Append(nil, n)))
		key := wire.RawKey("thule", days[i].instrument, at, digest)
		r := wire.Record{ID: key, Key: key, Size: int64(n), Digest: digest, State: wire.StateCurrent, ReceivedAt: at.Add(time.Duration(n) * time.Millisecond),
			ObservedFrom: &at, TimeSource: wire.TimeSourceName, Gateway: "gateway-0", Incarnation: "one", Source: "192.0.2.7:40001"}
		w.add(days[i], r)
		want[i] = append(want[i], r)
		full, err := w.full()
		if err != nil {
			t.Fatal(err)
		}
		if full {
			closes++
		}
	}
	if closes > 0 || w.open != 3*maxRaw+17 || w.raw > maxRaw || w.compressed == 0 || w.compressed > w.open*160 {
		t.Errorf("%d records: %d raw, %d bytes compressed, %d times full", w.open, w.raw, w.compressed, closes)
	}
	for i, d := range days {
		got, err := d.open.all()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%s: %s", d.instrument, diff)
		}
		first := want[i][0]
		changed := first
		changed.State = wire.StateSuperseded
		if r, found, err := openRecord(d, first.ID); err != nil || !found || r.State != wire.StateCurrent {
			t.Errorf("%s: %v, %v, %v", d.instrument, r, found, err)
		}
		w.add(d, changed)
		if r, found, err := openRecord(d, first.ID); err != nil || !found || r.State != wire.StateSuperseded {
			t.Errorf("%s: %v, %v, %v", d.instrument, r, found, err)
		}
		if d.open.clear(); d.open.len() != 0 {
			t.Errorf("%s: something is left", d.instrument)
		}
	}
}

// Too much is too much: parts close early.
func TestFull(t *testing.T) {
	t.Parallel()
	w := &Writer{days: map[dayKey]*day{}}
	for n := range maxRaw { // one of each day, which cannot be compressed
		d := &day{dayKey: dayKey{fmt.Sprintf("mag-%04d", n), "2026-11-18"}}
		w.days[d.dayKey] = d
		w.add(d, wire.Record{ID: "a", Key: "a", State: wire.StateCurrent})
	}
	if full, err := w.full(); err != nil || !full {
		t.Errorf("full: %v, %v", full, err)
	}
	w = &Writer{days: map[dayKey]*day{}, raw: maxRaw, compressed: maxCompressed}
	if full, err := w.full(); err != nil || !full {
		t.Errorf("full: %v, %v", full, err)
	}
}
