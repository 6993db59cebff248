// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// pushAndExpire has the partner get an object, which expires then.
func (l *lab) pushAndExpire() wire.Record {
	l.Helper()
	one := l.Put(archivetest.Camera, "c.txt", "one", named("c.txt"), at(storm))
	l.Wait(one)
	l.push(1)
	l.expire(&one)
	return one
}

func (l *lab) expire(r *wire.Record) {
	l.Helper()
	l.become(r, wire.StatePurged, "expired: kept for 48h0m0s", func(r *wire.Record) { r.ChangedBy = wire.ByRetention })
}

// The copy of an object that expired stays under another name when its name is used again, until it is purged. Later versions take the place of
// each other.
func TestNameUsedAgainAfterExpiry(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		one := l.pushAndExpire()
		later := time.Now().UTC().Add(time.Hour)
		two := l.Put(archivetest.Camera, "c.txt", "two", named("c.txt"), at(later), newer(2, one))
		l.Wait(two)
		l.push(1)
		last := "allsky-1/c.txt~" + one.Digest.String()[:16]
		want := map[string]string{last: "one", "allsky-1/c.txt": "two"}
		l.want("both", want)
		l.force = true
		if err := l.run(); err != nil {
			t.Error(err)
		}
		l.force = false
		three := l.Put(archivetest.Camera, "c.txt", "three", named("c.txt"), at(later.Add(time.Second)), newer(3, two))
		l.Wait(three)
		l.push(1)
		want["allsky-1/c.txt"] = "three"
		l.want("the first, and the current one", want)
		if has := l.mirrored(wire.DayOf(storm)); has.Objects != 1 {
			t.Errorf("of the day that expired the ledger counts %d copies", has.Objects)
		}
		l.become(&one, wire.StatePurged, "a person is in the picture", func(r *wire.Record) { r.ChangedBy = "anna" })
		l.push(0)
		delete(want, last)
		l.want("once the first is purged", want)
	})
}

// It stays also where two versions came between two runs, which had been received before it expired, and were listed later.
func TestNameUsedTwiceAfterExpiry(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		one := l.pushAndExpire()
		two := l.Put(archivetest.Camera, "c.txt", "two", named("c.txt"), at(storm.Add(time.Second)), newer(2, one))
		three := l.Put(archivetest.Camera, "c.txt", "three", named("c.txt"), at(storm.Add(2*time.Second)), newer(3, two))
		l.Wait(three)
		l.push(1)
		l.want("both", map[string]string{"allsky-1/c.txt~" + one.Digest.String()[:16]: "one", "allsky-1/c.txt": "three"})
	})
}

// The same where the next version comes late from a spool: what was received after it on its day is at the partner already.
func TestNameUsedAgainLate(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		one := l.pushAndExpire()
		l.Wait(l.Put(archivetest.Camera, "d.txt", "other", named("d.txt"), at(storm.Add(2*time.Second))))
		l.push(1)
		l.Wait(l.Put(archivetest.Camera, "c.txt", "two", named("c.txt"), at(storm.Add(time.Second)), newer(2, one)))
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("all", map[string]string{"allsky-1/c.txt~" + one.Digest.String()[:16]: "one", "allsky-1/c.txt": "two", "allsky-1/d.txt": "other"})
	})
}

// The same where other versions came and expired while the partner was away.
func TestNameUsedAgainWhileAway(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		one := l.pushAndExpire()
		before := one
		for i, body := range []string{"two", "three", "four"} {
			next := l.Put(archivetest.Camera, "c.txt", body, named("c.txt"), at(storm.AddDate(0, 0, i+1)), newer(i+2, before))
			l.Wait(next)
			l.expire(&next)
			before = next
		}
		five := l.Put(archivetest.Camera, "c.txt", "five", named("c.txt"), at(time.Now().UTC().Add(time.Hour)), newer(5, before))
		l.Wait(five)
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"allsky-1/c.txt~" + one.Digest.String()[:16]: "one", "allsky-1/c.txt": "five"}
		l.want("the first, and the current one", want)
		six := l.Put(archivetest.Camera, "c.txt", "six", named("c.txt"), at(time.Now().UTC().Add(2*time.Hour)), newer(6, five))
		l.Wait(six)
		l.push(1)
		want["allsky-1/c.txt"] = "six"
		l.want("the first, and the next one", want)
	})
}
