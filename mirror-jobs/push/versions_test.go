// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// versionsOf are two versions of a name, published under two paths as a naming template of days has it, and brought one after the other.
func (l *lab) versionsOf(name string) (one, two wire.Record) {
	l.Helper()
	one = l.Put(archivetest.Camera, "2015/03/17/"+name, "one", named(name), at(storm))
	l.Wait(one)
	l.push(1)
	next := func(r *wire.Record) {
		r.Version, r.Supersedes, r.Key = 2, one.ID, wire.NamedKey(archivetest.Site, archivetest.Camera, name, 2)
	}
	two = l.Put(archivetest.Camera, "2015/03/18/"+name, "the second", named(name), at(storm.AddDate(0, 0, 1)), next)
	l.Wait(two)
	l.push(1)
	return one, two
}

// The copy of a version that is retracted or purged is removed, and the copy of the current version of its name stays, whether they lie
// under one path at the partner or under two.
func TestNamedVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, template, second string }{
		{"one path", "{instrument}/{name}", "allsky-1/list.fits"},
		{"two paths", "{instrument}/{year}/{month}/{day}/{name}", "allsky-1/2015/03/18/list.fits"},
		{"paths of their own", "{instrument}/{year}/{month}/{day}_{id}.gz", ""},
	} {
		for _, state := range []wire.State{wire.StateRetracted, wire.StatePurged} {
			t.Run(c.name+" "+string(state), func(t *testing.T) {
				byEach(t, func(t *testing.T, l *lab) {
					l.entry.Template, l.entry.SafetyStopPercent = c.template, 100
					one, two := l.versionsOf("list.fits")
					second := c.second
					if second == "" {
						second = "allsky-1/2015/03/18_" + wire.ShortID(two.ReceivedAt, two.Digest) + ".gz"
					}
					asked := l.asks(&one)
					l.become(&one, state, "a face", func(r *wire.Record) { r.Outdated = true })
					if err := l.run(); err != nil {
						t.Fatal(err)
					}
					l.want("the current version alone", map[string]string{second: "the second"})
					if state == wire.StatePurged && !l.confirmed(asked) {
						t.Error("the purge is not confirmed")
					}
					// The day is looked at again for another reason.
					other := l.Put(archivetest.Camera, "2015/03/17/b", "b", named("b"), at(storm.Add(time.Hour)))
					l.Wait(other)
					l.push(1)
					l.become(&other, wire.StateRetracted, "a lamp")
					l.push(0)
					l.want("the current version alone", map[string]string{second: "the second"})
				})
			})
		}
	}
}

// A version that the partner got and that is purged before the next one comes goes by the purge, though another is published under its
// path: the purge does not wait for that one.
func TestPurgedBeforeTheNext(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.SafetyStopPercent = 100
		one := l.Put(archivetest.Camera, "n/f.fits", "one", at(storm))
		l.Wait(one)
		l.push(1)
		two := l.Put(archivetest.Camera, "n/f.fits", "the second", at(storm.AddDate(0, 0, 1)), newer(2, one))
		l.Wait(two)
		if err := l.Store.Delete(t.Context(), two.Key); err != nil { // it cannot be brought
			t.Fatal(err)
		}
		asked := l.asks(&one)
		l.become(&one, wire.StatePurged, "a face", func(r *wire.Record) { r.Outdated = true })
		if err := l.run(); err == nil || !l.confirmed(asked) {
			t.Errorf("%v, confirmed %t", err, l.confirmed(asked))
		}
		l.want("nothing", map[string]string{})
	})
}
