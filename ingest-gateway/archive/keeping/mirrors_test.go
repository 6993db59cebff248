// SPDX-License-Identifier: Apache-2.0

package keeping

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// count writes what the ledger says of the camera's day.
func (l *lab) count(step wire.Step, writer string, objects uint64) {
	l.t.Helper()
	value, err := wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": {Objects: objects}}}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	kv, err := l.js.KeyValue(l.t.Context(), wire.LedgerBucket(site))
	if err == nil {
		_, err = kv.Put(l.t.Context(), wire.LedgerKey(camera, day, step, writer), value)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// A day waits for the partners that have not got all of it, repeats apart.
func TestExpireWaitsForPartners(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.room()
	whole := map[wire.State]int{wire.StateCurrent: 7}
	l.count(wire.StepStored, "gateway-0", 8)
	l.count(wire.StepRepeated, wire.ArchivistWriter, 1)
	l.count(wire.StepMirrored, "eiscat", 6)
	l.count(wire.StepMirrored, "madrigal", 7)
	l.pass(r, now)
	l.want("owed", l.states(camera), whole)
	for _, told := range r.told {
		if !strings.Contains(told, "eiscat have not got it") || strings.Contains(told, "madrigal") {
			t.Errorf("told: %s", told)
		}
	}
	l.want("told", len(r.told), 1)
	l.count(wire.StepMirrored, "eiscat", 7)
	l.pass(r, now.Add(time.Minute))
	if is := l.states(camera); is[wire.StatePurged] != 6 {
		t.Errorf("when all have got it: %v", is)
	}
}

// A purge is asked of the partners that have something of the day, and stays to be seen
// until each of them confirmed it.
func TestPurgeIsConfirmed(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.room()
	l.count(wire.StepMirrored, "eiscat", 7)
	l.count(wire.StepMirrored, "madrigal", 0)
	key := l.purge(r).Key
	passes := func() {
		t.Helper()
		for i := range 3 {
			if err := r.pass(t.Context(), now.Add(time.Duration(i)*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	passes()
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	l.want("the old pack", len(l.keys(key)), 0)
	for _, told := range r.told {
		if told != "Mirrors: eiscat did not confirm the purge" {
			t.Errorf("told: %s", told)
		}
	}
	all, err := r.batches(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for _, removal := range all[0].objects {
		removal.Confirmed = map[string]time.Time{"eiscat": now}
		value, err := removal.Encode()
		if err == nil {
			_, err = r.kv.Put(t.Context(), removal.Key(), value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	passes()
	l.want("removals after that", l.waiting(r), 0)
}
