// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// purge lists the camera's first member of the pack as purged, and asks for its removal.
func (l *lab) purge(r *Collector) wire.Record {
	l.Helper()
	var first wire.Record
	for rec, err := range manifest.Records(l.Context(), l.Store, site, camera, day) {
		if err != nil {
			l.Fatal(err)
		}
		if rec.InPack() && first.ID == "" {
			first = rec
		}
	}
	first.State, first.PurgedAt = wire.StatePurged, &now
	l.PutPart(camera, day, 2, first)
	removal := wire.Removal{Instrument: camera, Day: day, ID: first.ID, Reason: "private", By: "anna", At: now}
	value, err := wire.Encode(removal)
	if err != nil {
		l.Fatal(err)
	}
	if _, err := r.kv.Put(l.Context(), removal.Key(), value); err != nil {
		l.Fatal(err)
	}
	return first
}

// A pack whose removal would lose something stays until that is mended.
func TestWaits(t *testing.T) {
	l := newLab(t)
	wait := func(r *Collector, reason string) {
		t.Helper()
		l.passes(r)
		l.want("removals that wait: "+reason, l.waiting(r), 1)
		for key, text := range r.told {
			if want := reason + ": "; len(text) < len(want) || text[:len(want)] != want {
				t.Errorf("%s waits: %q, want %s", key, text, reason)
			}
		}
		l.want("told", len(r.told), 1)
		l.want("the old pack", len(l.Keys(wire.PackKey(site, noon, "gateway-0", "one", 1))), 1)
	}
	mended := func(r *Collector) {
		t.Helper()
		l.passes(r)
		l.want("removals", l.waiting(r), 0)
		l.want("the camera's states", l.states(camera), map[wire.State]int{wire.StateCurrent: 6, wire.StatePurged: 1})
		l.want("the sonde's states", l.states(sonde), map[wire.State]int{wire.StateCurrent: 1})
	}

	t.Run("for a member that is not listed", func(t *testing.T) {
		l.fill()
		part := wire.ManifestPartKey(site, sonde, day, 1)
		data := l.read(part)
		if err := l.Store.Delete(t.Context(), part); err != nil {
			t.Fatal(err)
		}
		r := l.collector()
		l.purge(r)
		wait(r, waitUnlisted)
		l.Put(part, data)
		mended(r)
	})
	t.Run("for a member that is damaged", func(t *testing.T) {
		l.fill()
		r := l.collector()
		key := l.purge(r).Key
		data := l.read(key)
		broken := bytes.Replace(data, []byte("packed 2"), []byte("packed X"), 1)
		l.Put(key, broken)
		wait(r, waitDamage)
		l.Put(key, data)
		mended(r)
	})
	t.Run("for readers", func(t *testing.T) {
		l.fill()
		r := l.collector()
		key := l.purge(r).Key
		for range 2 {
			if err := r.pass(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(l.Keys(key)); got != fmt.Sprint([]string{key}) {
			t.Errorf("the old pack: %s", got)
		}
		l.want("removals", l.waiting(r), 1)
		l.states(camera)
		if err := r.pass(t.Context(), now.Add(2*time.Minute)); err != nil {
			t.Fatal(err)
		}
		l.want("the old pack", len(l.Keys(key)), 0)
		mended(r)
	})
}

func (l *lab) read(key string) []byte {
	l.Helper()
	body, _, err := l.Store.Get(l.Context(), key, objectstore.All)
	if err != nil {
		l.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		l.Fatal(err)
	}
	return data
}
