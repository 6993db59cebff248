// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// count writes what the ledger says of the camera's day: its first objects, so many.
func (l *lab) count(step wire.Step, writer string, objects uint64) {
	l.Helper()
	l.countOf(step, writer, objects, 1)
}

// countOf is count for objects with numbers from first on.
func (l *lab) countOf(step wire.Step, writer string, objects, first uint64) {
	l.Helper()
	totals := wire.Totals{Objects: objects}
	for i := range objects {
		totals.Digest = totals.Digest.Plus(wire.Digest{31: byte(first + i)})
	}
	value, err := wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": totals}})
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.KV(wire.LedgerBucket(site)).Put(l.Context(), wire.LedgerKey(camera, day, step, writer), value); err != nil {
		l.Fatal(err)
	}
}

// change writes the only removal anew, as others do.
func (l *lab) change(r *Collector, to func(*wire.Removal)) {
	l.Helper()
	all, err := r.batches(l.Context())
	if err != nil || len(all) != 1 {
		l.Fatal(all, err)
	}
	for _, removal := range all[0].objects {
		to(&removal)
		value, err := wire.Encode(removal)
		if err == nil {
			_, err = r.kv.Put(l.Context(), removal.Key(), value)
		}
		if err != nil {
			l.Fatal(err)
		}
	}
}

// passes works on all removals until nothing waits for readers any more.
func (l *lab) passes(r *Collector) {
	l.Helper()
	for i := range 3 {
		if err := r.pass(l.Context(), now.Add(time.Duration(i)*time.Hour)); err != nil {
			l.Fatal(err)
		}
	}
}

// A day waits for the partners that have not got all of it, duplicates apart.
func TestExpireWaitsForPartners(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	whole := map[wire.State]int{wire.StateCurrent: 7}
	l.count(wire.StepStored, "gateway-0", 8)
	l.countOf(wire.StepDuplicates, wire.ArchivistWriter, 1, 8)
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
	l.countOf(wire.StepMirrored, "eiscat", 7, 2) // as many, and not the same
	l.pass(r, now.Add(30*time.Second))
	l.want("others", l.states(camera), whole)
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
	r := l.collector()
	l.count(wire.StepMirrored, "eiscat", 7)
	l.count(wire.StepMirrored, "madrigal", 0)
	key := l.purge(r).Key
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	l.want("the old pack", len(l.Keys(key)), 0)
	for _, told := range r.told {
		if told != "Mirrors: eiscat did not confirm the purge" {
			t.Errorf("told: %s", told)
		}
	}
	l.change(r, func(is *wire.Removal) { is.Confirmed = map[string]time.Time{"eiscat": now} })
	l.passes(r)
	l.want("removals after that", l.waiting(r), 0)
}

// A day waits for a partner no longer than the partner's own holdRetention, nor than its Instrument's; and not at all for one that is not
// declared any more.
func TestPartnersHoldNotForEver(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]time.Duration{"eiscat": 30 * time.Minute, "madrigal": 1000 * time.Hour}
	r := l.collector()
	whole := map[wire.State]int{wire.StateCurrent: 7}
	l.count(wire.StepStored, "gateway-0", 7)
	l.count(wire.StepMirrored, "eiscat", 6)
	l.count(wire.StepMirrored, "gone", 0)
	l.pass(r, now)
	l.want("owed to eiscat", l.states(camera), whole)
	for _, told := range r.told {
		if !strings.Contains(told, "eiscat have not got it") {
			t.Errorf("told: %s", told)
		}
	}
	l.count(wire.StepMirrored, "madrigal", 6)
	l.pass(r, now.Add(31*time.Minute)) // eiscat's time is over, madrigal's that of the Instrument
	l.want("owed to madrigal", l.states(camera), whole)
	l.pass(r, now.Add(61*time.Minute))
	if is := l.states(camera); is[wire.StatePurged] != 6 {
		t.Errorf("when nobody may hold it any longer: %v", is)
	}
}

// A partner whose declaration goes holds nothing any more, and confirms nothing.
func TestPartnerIsNotDeclaredAnyMore(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.partners = map[string]time.Duration{"eiscat": time.Hour}
	r := l.collector()
	l.count(wire.StepMirrored, "eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	l.partners = map[string]time.Duration{}
	l.passes(r)
	l.want("removals that wait for nobody", l.waiting(r), 0)
}

// A partner confirms a purge by a record of its own, which goes with the removal.
func TestPartnerConfirms(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	l.count(wire.StepMirrored, "eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	all, err := r.batches(l.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	value, err := wire.Encode(wire.MirrorConfirmed{At: now})
	if err != nil {
		t.Fatal(err)
	}
	for _, removal := range all[0].objects {
		if _, err := r.kv.Put(l.Context(), wire.MirrorConfirmedKey("eiscat", removal), value); err != nil {
			t.Fatal(err)
		}
	}
	l.passes(r)
	l.want("removals after that", l.waiting(r), 0)
	keys, err := r.kv.ListKeysFiltered(l.Context(), wire.MirrorConfirmedKeys("eiscat"))
	if err != nil {
		t.Fatal(err)
	}
	for key := range keys.Keys() {
		t.Errorf("%s stays", key)
	}
}

// What is found again of an object goes while its purge waits for a partner, also where
// that is written while a pass is under way.
func TestFoundAgainGoesWhileItWaits(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	l.count(wire.StepMirrored, "eiscat", 7)
	l.purge(r)
	l.passes(r)
	l.want("removals that wait for eiscat", l.waiting(r), 1)
	first, second := wire.NamedKey(site, camera, "first", 1), wire.NamedKey(site, camera, "second", 1)
	l.Put(first, []byte("packed 0"))
	l.change(r, func(is *wire.Removal) { is.Found = first })
	l.passes(r)
	l.want("what was found again", len(l.Keys(first)), 0)
	l.want("removals that wait for eiscat", l.waiting(r), 1)

	l.Put(first, []byte("packed 0"))
	l.Put(second, []byte("packed 0"))
	l.change(r, func(is *wire.Removal) { is.Confirmed = map[string]time.Time{"eiscat": now} })
	l.Store.Refuse = func(string, bool) error {
		l.Store.Refuse = nil
		l.change(r, func(is *wire.Removal) { is.Found = second })
		return nil
	}
	if err := r.pass(t.Context(), now.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.want("removals with something added", l.waiting(r), 1)
	l.passes(r)
	l.want("what was found meanwhile", len(l.Keys(second)), 0)
	l.want("removals at the end", l.waiting(r), 0)
}
