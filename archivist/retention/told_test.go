// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// told checks that readers find the day as its manifests list it.
func (l *lab) told(what string) {
	l.Helper()
	r := l.collector()
	for _, instrument := range []string{camera, sonde} {
		want, err := manifest.Summarize(l.Context(), l.Store, site, instrument, day)
		if err != nil {
			l.Fatal(err)
		}
		days, err := r.days(l.Context(), instrument)
		if err != nil {
			l.Fatal(err)
		}
		if diff := cmp.Diff([]wire.RootDay{want}, days); diff != "" {
			l.Errorf("%s: the index of %s (-manifests +index):\n%s", what, instrument, diff)
		}
	}
}

// No byte goes before readers know that it does; an archivist that starts publishes to them what
// the one before it did not, however old the day is.
func TestReadersAreTold(t *testing.T) {
	l := newLab(t)
	l.fill()
	before := len(l.Keys("o/")) + len(l.Keys("packs/"))
	r := l.collectorWith(l.idle())
	for i := range 3 {
		l.pass(r, now.Add(time.Duration(i)*time.Hour))
	}
	l.want("what is stored while nobody can be told", len(l.Keys("o/"))+len(l.Keys("packs/")), before)
	l.want("removals", l.waiting(r), 1)
	l.want("waiting", testutil.ToFloat64(l.metrics.waiting.WithLabelValues(waitIndex)), 1)

	k, stop := l.keeper()
	defer stop()
	next := l.collectorWith(k)
	l.pass(next, now.Add(4*time.Hour))
	l.told("at the first pass")
	l.want("the shared pack", len(l.Keys(wire.PackKey(site, noon, "gateway-0", "one", 1))), 1)
	l.pass(next, now.Add(5*time.Hour))
	l.want("removals", l.waiting(next), 0)
	l.want("waiting", testutil.ToFloat64(l.metrics.waiting.WithLabelValues(waitIndex)), 0)
	l.gone()
	l.told("at the end")
}

// The retention by size of an Instrument is checked again before the first byte is removed.
func TestKeptBySize(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep = &wire.RetentionEntry{MaxSize: 1, HoldMillis: time.Hour.Milliseconds()}
	l.has("eiscat", 0)
	r := l.collector()
	l.pass(r, now)
	l.want("removals", l.waiting(r), 1)
	l.keep = &wire.RetentionEntry{MaxSize: 1 << 20, HoldMillis: time.Hour.Milliseconds()}
	l.pass(r, now.Add(2*time.Hour))
	l.want("removals", l.waiting(r), 0)
	l.want("the camera's states", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
}

// A day whose changes were stored is removed, whatever its Instrument keeps by then: the changes
// say for good that it was purged.
func TestBegunIsDone(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	if _, err := r.findDue(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	l.Store.KillAfter(1)
	if err := r.pass(t.Context(), now); err == nil {
		t.Fatal("the pass succeeded although the store is gone")
	}
	l.Store.KillAfter(-1)
	l.want("files of changes", len(l.Keys(wire.ChangesPrefix(site, camera, day))), 1)
	l.want("the camera's states", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	l.keep = nil
	next := l.collector()
	l.pass(next, now.Add(time.Hour))
	l.pass(next, now.Add(2*time.Hour))
	l.want("removals", l.waiting(next), 0)
	l.gone()
}

// Foreign files among the changes of a day do not keep it from expiring.
func TestForeignAmongChanges(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.Put(wire.ChangesPrefix(site, camera, day)+"notes.txt", []byte("hello"))
	l.Put(wire.ChangesKey(site, camera, day, 1, wire.Digest{1}), []byte("hello"))
	r := l.collector()
	for i := range 3 {
		l.pass(r, now.Add(time.Duration(i)*time.Hour))
	}
	l.want("removals", l.waiting(r), 0)
	l.gone()
	l.want("foreign", testutil.ToFloat64(l.metrics.foreign), 2)
}

// An object that the store does not delete holds up neither the others of its day nor
// other instruments, and is tried again.
func TestStuck(t *testing.T) {
	l := newLab(t)
	l.fill()
	stuck := l.Keys(wire.InstrumentPrefix(site, camera))[0]
	l.Store.Refuse = func(key string, deletes bool) error {
		if deletes && key == stuck {
			return objectstore.ErrAccessDenied
		}
		return nil
	}
	r := l.collector()
	body := wire.Removal{Instrument: sonde, Day: day, ID: "o/thule/sonde-1/r/2026/11/10/none", Reason: "private", By: "anna", At: now}
	value, err := wire.Encode(body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.kv.Put(t.Context(), body.Key(), value); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l.pass(r, now.Add(time.Duration(i)*time.Hour))
	}
	l.want("what cannot be deleted", l.Keys(wire.InstrumentPrefix(site, camera)), []string{stuck})
	l.want("removals", l.waiting(r), 1)
	l.want("waiting", testutil.ToFloat64(l.metrics.waiting.WithLabelValues(waitFailed)), 1)
	l.Store.Refuse = nil
	for i := range 3 {
		l.pass(r, now.Add(time.Duration(3+i)*time.Hour))
	}
	l.want("removals", l.waiting(r), 0)
	l.gone()
}

// Before the registry is read, or before it is known up to which day the ledger is closed, nothing
// begins and nothing continues, and it is tried again soon.
func TestNothingIsKnownYet(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	look := func(what string, want bool) {
		t.Helper()
		looked, err := r.findDue(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		l.want("looked, "+what, looked, want)
	}
	l.unread = true
	look("without a registry", false)
	l.unread, l.closedTo = false, ""
	look("without a closed day", false)
	l.want("removals", l.waiting(r), 0)
	l.closedTo = day
	look("with all", true)
	l.want("removals", l.waiting(r), 1)
	l.unread = true // and another gateway takes over, which has it from its disk
	l.pass(r, now)
	l.want("waiting", testutil.ToFloat64(l.metrics.waiting.WithLabelValues(waitHold)), 1)
	l.want("the camera's states", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
}
