// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// movers are the kinds of partners.
var movers = map[string]func(*lab){"rsync": func(l *lab) { l.toDaemon("") }, "s3": (*lab).toBucket}

// byEach runs a test with a partner of each kind.
func byEach(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	t.Parallel()
	for name, to := range movers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			to(l)
			test(t, l)
		})
	}
}

// become announces what became of an object, and waits until the catalog knows it.
func (l *lab) become(r *wire.Record, state wire.State, reason string, change ...func(*wire.Record)) {
	l.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	if r.PurgedAt != nil { // it expired, and the later change counts
		now = r.PurgedAt.Add(time.Second)
	}
	r.State, r.Reason = state, reason
	switch state {
	case wire.StateRetracted:
		r.RetractedAt, r.RestoredAt = &now, nil
	case wire.StatePurged:
		r.PurgedAt = &now
	default:
		r.RestoredAt = &now
	}
	for _, c := range change {
		c(r)
	}
	l.Announce(archivetest.Camera, *r)
	l.Until(fmt.Sprintf("%s is %s", r.Path, state), func() bool {
		d, err := l.Catalog.Day(l.Context(), archivetest.Camera, wire.DayOf(r.ReceivedAt))
		if err != nil {
			l.Fatal(err)
		}
		for _, is := range d.Records {
			if is.ID == r.ID {
				return is.State == state && is.Reason == reason // it may have expired before it is purged
			}
		}
		return false
	})
}

func expired(r *wire.Record) { r.ChangedBy = wire.ByRetention }

// days puts so many objects of two days, of each as many.
func (l *lab) days(each int) (all []wire.Record, want map[string]string) {
	l.Helper()
	want = map[string]string{}
	for i := range 2 * each {
		name, text := fmt.Sprintf("%02d.jpg", i), fmt.Sprintf("object %d", i)
		all = append(all, l.Put(archivetest.Camera, name, text, at(storm.AddDate(0, 0, i/each).Add(time.Duration(i)*time.Minute))))
		want["allsky-1/"+name] = text
	}
	l.Wait(all[len(all)-1])
	return all, want
}

// More of all copies must go than one run may remove, though little of each day: none goes, whatever is new comes, and a run
// with force removes them.
func TestSafetyStop(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.SafetyStopPercent, l.entry.Retractions = 10, wire.MirrorTombstone
		all, want := l.days(10)
		l.push(20)
		for _, i := range []int{0, 1, 10} {
			l.become(&all[i], wire.StateRetracted, "a lamp")
		}
		l.Wait(l.Put(archivetest.Camera, "new.jpg", "new", at(storm.Add(time.Hour))))
		want["allsky-1/new.jpg"] = "new"
		for range 2 {
			var p *push.Problem
			err := l.run()
			if !errors.As(err, &p) || p.Reason != wire.MirrorReasonSafetyStop {
				t.Fatalf("%v", err)
			}
			for _, part := range []string{"3 of 2", "more than 10 percent", "`kubectl substorm mirror run uni --force`"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			l.want("nothing is removed", want)
		}
		l.force = true
		if err := l.run(); err != nil || l.last.Report().Removed != 3 {
			t.Errorf("with force: %v, %+v", err, l.last.Report())
		}
		l.force = false
		for _, i := range []int{0, 1, 10} {
			delete(want, "allsky-1/"+all[i].Path)
		}
		has := l.has()
		for path := range has {
			if strings.HasSuffix(path, push.TombstoneSuffix) {
				delete(has, path)
			}
		}
		if len(has) != len(want) {
			t.Errorf("with force: the partner has %d objects, want %d", len(has), len(want))
		}
		// Objects that were removed before do not count again: two of eighteen are too many, one is not.
		l.become(&all[2], wire.StateRetracted, "a lamp")
		if err := l.run(); err != nil || l.last.Report().Removed != 1 {
			t.Errorf("one more: %v, %+v", err, l.last.Report())
		}
		if has := l.mirrored("2015-03-17"); has.Objects != 8 {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// A copy whose original expired stays, or goes with the next run; and nothing goes because the archive cannot be read.
func TestPrune(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Retractions = wire.MirrorTombstone
		all, want := l.days(2)
		l.push(4)
		kept := l.mirrored("2015-03-17")
		for i := range 2 {
			l.become(&all[i], wire.StatePurged, "older than 30 days", expired)
		}
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("Never", want)
		if has := l.mirrored("2015-03-17"); has.Objects != kept.Objects || has.Digest != kept.Digest {
			t.Errorf("ledger: %+v, want %+v", has, kept)
		}
		l.entry.Prune = wire.MirrorPruneWhenExpired
		l.entry.Generation++
		if err := l.run(); err != nil || l.last.Report().Removed != 2 {
			t.Errorf("%v, %+v", err, l.last.Report())
		}
		delete(want, "allsky-1/00.jpg")
		delete(want, "allsky-1/01.jpg")
		l.want("WhenExpired", want)
		if has := l.mirrored("2015-03-17"); has.Objects != 0 || has.Digest != (wire.Digest{}) {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// The notes of a day are lost, and the ledger still has that the partner has something of it: objects that were retracted since are removed.
func TestBookLost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("")
	l.entry.SafetyStopPercent = 100
	all, want := l.days(2)
	l.push(4)
	kv := l.cursors()
	keys, err := kv.ListKeysFiltered(t.Context(), "mirror."+partner+".>")
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for key := range keys.Keys() {
		if err := kv.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		lost++
	}
	if lost == 0 {
		t.Fatal("nothing was known")
	}
	l.become(&all[0], wire.StateRetracted, "a lamp")
	delete(want, "allsky-1/00.jpg")
	if err := l.run(); err != nil {
		t.Error(err)
	}
	l.want("what was retracted goes", want)
}

// A copy that the partner keeps is reported, and keeps nothing else from coming.
func TestKept(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this needs the privilege to let a daemon run as another user")
	}
	const nobody = 65534
	l := newLab(t)
	l.entry.SafetyStopPercent = 100
	dir := l.toDaemon("uid = nobody\ngid = nogroup\n")
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	kept := l.Put(archivetest.Camera, "kept/1.jpg", "one", at(storm))
	l.Wait(kept)
	l.push(1)
	if err := os.Chown(filepath.Join(dir, "allsky-1/kept"), 0, 0); err != nil {
		t.Fatal(err)
	}
	l.become(&kept, wire.StateRetracted, "a lamp")
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm.AddDate(0, 0, 1))))
	if err := l.run(); !errors.Is(err, push.ErrKept) || errors.Is(err, push.ErrOwed) {
		t.Errorf("the partner keeps a copy that it is to remove, and the run says %v", err)
	}
	l.want("the rest came", map[string]string{"allsky-1/kept/1.jpg": "one", "allsky-1/2.jpg": "two"})
	if has := l.mirrored("2015-03-17"); has.Objects != 1 {
		t.Errorf("the partner has %d objects of the day by the ledger, and keeps one", has.Objects)
	}
	if err := os.Chown(filepath.Join(dir, "allsky-1/kept"), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	l.push(0)
	l.want("it is removed later", map[string]string{"allsky-1/2.jpg": "two"})
}

// The archive's manifests cannot be read any more: a run fails, and removes nothing.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("")
	l.entry.Prune = wire.MirrorPruneWhenExpired
	all, want := l.days(2)
	l.push(4)
	l.become(&all[0], wire.StateRetracted, "a lamp")
	l.List()
	for info, err := range l.Store.List(t.Context(), "manifest/", "") {
		if err == nil {
			err = l.Store.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.run(); err == nil {
		t.Error("the archive cannot be read, and the run says nothing")
	}
	l.want("nothing is removed", want)
}

// A file beside its place says why a copy is gone, until there is an object again.
func TestTombstone(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Retractions, l.entry.SafetyStopPercent = wire.MirrorTombstone, 100
		one := l.Put(archivetest.Camera, "b/1.jpg", "one", at(storm))
		two := l.Put(archivetest.Camera, "b/2 æ%.jpg", "two", at(storm.Add(time.Minute)))
		l.Wait(l.Put(archivetest.Camera, "3.jpg", "three", at(storm.Add(2*time.Minute))))
		l.push(3)
		l.become(&one, wire.StateRetracted, "a lamp was on")
		l.become(&two, wire.StatePurged, "a person is in the picture")
		if err := l.run(); err != nil || l.last.Report().Removed != 2 {
			t.Fatalf("%v, %+v", err, l.last.Report())
		}
		has := l.has()
		for path, is := range map[string]wire.Record{"allsky-1/b/1.jpg": one, "allsky-1/b/2 æ%.jpg": two} {
			var says push.Tombstone
			if err := json.Unmarshal([]byte(has[path+push.TombstoneSuffix]), &says); err != nil {
				t.Fatalf("%s: %v in %q", path, err, has)
			}
			if says.Path != path || says.ID != is.ID || says.Digest != is.Digest || says.State != is.State || says.Reason != is.Reason || says.Size != is.Size {
				t.Errorf("%+v", says)
			}
			at, want := says.RetractedAt, is.RetractedAt
			if is.State == wire.StatePurged {
				at, want = says.PurgedAt, is.PurgedAt
			}
			if at == nil || !at.Equal(*want) {
				t.Errorf("%s: %v, want %v", path, at, want)
			}
		}
		if len(has) != 3 || has["allsky-1/3.jpg"] != "three" {
			t.Errorf("the partner has %v", has)
		}
		l.become(&one, wire.StateCurrent, "it was the moon")
		l.Wait(l.Put(archivetest.Camera, two.Path, "another two", at(storm.Add(3*time.Minute)), newer(2, two)))
		l.push(2)
		l.want("restored, and replaced", map[string]string{"allsky-1/b/1.jpg": "one", "allsky-1/b/2 æ%.jpg": "another two", "allsky-1/3.jpg": "three"})
		l.push(0)
	})
}

// Retracted objects stay if retractions are ignored; purged ones do not.
func TestIgnore(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Retractions = wire.MirrorIgnore
		all, want := l.days(2)
		l.push(4)
		l.become(&all[0], wire.StateRetracted, "a lamp")
		l.become(&all[2], wire.StatePurged, "a face")
		if err := l.run(); err != nil || l.last.Report().Removed != 1 {
			t.Errorf("%v, %+v", err, l.last.Report())
		}
		delete(want, "allsky-1/02.jpg")
		l.want("what is purged is gone", want)
		if has := l.mirrored("2015-03-17"); has.Objects != 2 {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// asks has the archivist ask partners for the purge of an object.
func (l *lab) asks(r *wire.Record) wire.Removal {
	l.Helper()
	asked := wire.Removal{Instrument: archivetest.Camera, Day: wire.DayOf(r.ReceivedAt), ID: r.ID, Reason: "a face", By: "a person", At: time.Now()}
	value, err := wire.Encode(asked)
	if err == nil {
		_, err = l.cursors().Put(l.Context(), asked.Key(), value)
	}
	if err != nil {
		l.Fatal(err)
	}
	return asked
}

func (l *lab) cursors() jetstream.KeyValue {
	l.Helper()
	kv, err := l.JetStream.KeyValue(l.Context(), wire.CursorBucket(archivetest.Site))
	if err != nil {
		l.Fatal(err)
	}
	return kv
}

// confirmed says whether the partner confirmed a purge.
func (l *lab) confirmed(asked wire.Removal) bool {
	l.Helper()
	_, err := l.cursors().Get(l.Context(), wire.MirrorConfirmedKey(partner, asked))
	return err == nil
}

// A purge that is asked late, or of what the book does not know any more, is confirmed once the copy is gone; one that is not listed
// waits.
func TestPurgeAsked(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		all, want := l.days(2)
		l.push(4)
		l.become(&all[0], wire.StatePurged, "a face")
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		late := l.asks(&all[0])
		early := l.asks(&all[2])
		if err := l.run(); err != nil || !l.confirmed(late) || l.confirmed(early) || l.last.Unconfirmed() != 1 {
			t.Errorf("%v: late %t, early %t, %d unconfirmed", err, l.confirmed(late), l.confirmed(early), l.last.Unconfirmed())
		}
		keys, err := l.cursors().ListKeysFiltered(t.Context(), wire.MirrorCursorKey(partner, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for key := range keys.Keys() {
			if err := l.cursors().Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		l.become(&all[2], wire.StatePurged, "a face")
		if err := l.run(); err != nil || !l.confirmed(early) || l.last.Unconfirmed() != 0 {
			t.Errorf("%v: %t, %d unconfirmed", err, l.confirmed(early), l.last.Unconfirmed())
		}
		delete(want, "allsky-1/00.jpg")
		delete(want, "allsky-1/02.jpg")
		l.want("what is purged is gone", want)
	})
}

// A purge is asked of a partner that an Instrument is not for any more; its other copies stay.
func TestUnselected(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		all, want := l.days(2)
		l.push(4)
		l.entry.Selection.Instruments = nil
		l.entry.Generation++
		asked := l.asks(&all[0])
		l.become(&all[0], wire.StatePurged, "a face")
		if err := l.run(); err != nil || l.last.Report().Removed != 1 {
			t.Errorf("%v, %+v", err, l.last.Report())
		}
		if !l.confirmed(asked) {
			t.Error("the purge is not confirmed")
		}
		delete(want, "allsky-1/00.jpg")
		l.want("the others stay", want)
		l.entry.Selection.Instruments = []string{archivetest.Camera}
		l.entry.Generation++
		l.push(0)
	})
}

// Superseded versions are kept beside the current one, go when they are retracted, and what is current stays.
func TestVersions(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Selection.Versions, l.entry.Retractions = wire.MirrorVersionsAll, wire.MirrorTombstone
		one := l.Put(archivetest.Camera, "n/f.fits", "one", at(storm))
		l.Wait(one)
		l.push(1)
		version := func(n int, text string, before wire.Record) wire.Record {
			r := l.Put(archivetest.Camera, before.Path, text, at(storm.Add(time.Duration(n)*time.Minute)), newer(n, before))
			l.Wait(r)
			return r
		}
		two := version(2, "two", one)
		three := version(3, "three", two)
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"allsky-1/n/f.fits": "three", "allsky-1/v/1/n/f.fits": "one", "allsky-1/v/2/n/f.fits": "two"}
		l.want("all versions", want)
		l.push(0)
		l.become(&one, wire.StateRetracted, "a lamp", func(r *wire.Record) { r.Outdated = true })
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		has := l.has()
		var says push.Tombstone
		if err := json.Unmarshal([]byte(has["allsky-1/v/1/n/f.fits"+push.TombstoneSuffix]), &says); err != nil || says.ReplacedBy != "allsky-1/n/f.fits" {
			t.Errorf("%v, %+v", err, says)
		}
		delete(want, "allsky-1/v/1/n/f.fits")
		delete(has, "allsky-1/v/1/n/f.fits"+push.TombstoneSuffix)
		if fmt.Sprint(has) != fmt.Sprint(want) {
			t.Errorf("the partner has %v, want %v", has, want)
		}
		l.become(&three, wire.StateRetracted, "a lamp")
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		if has := l.has(); has["allsky-1/n/f.fits"] != "" || has["allsky-1/v/2/n/f.fits"] != "two" || has["allsky-1/n/f.fits"+push.TombstoneSuffix] == "" {
			t.Errorf("the partner has %v", has)
		}
	})
}

// newer makes an object another version of one.
func newer(version int, before wire.Record) func(*wire.Record) {
	return func(r *wire.Record) {
		r.Version, r.Supersedes, r.Key = version, before.ID, wire.NamedKey(archivetest.Site, archivetest.Camera, before.Path, version)
	}
}

// Until it is listed, an older version of another day passes for current: it takes the place of the newer one neither when it is
// brought, nor when it is verified.
func TestNewerOfAnotherDay(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.VerifyPercent = 100
		one := l.Put(archivetest.Camera, "n/f.fits", "one", at(storm))
		l.Wait(l.Put(archivetest.Camera, "n/f.fits", "two", at(storm.AddDate(0, 0, 1)), newer(2, one)))
		for range 2 {
			if err := l.run(); err != nil {
				t.Fatal(err)
			}
			l.want("the newer one", map[string]string{"allsky-1/n/f.fits": "two"})
		}
		l.Wait(l.Put(archivetest.Camera, "late.fits", "late", at(storm.Add(-time.Hour))))
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("the newer one", map[string]string{"allsky-1/n/f.fits": "two", "allsky-1/late.fits": "late"})
	})
}

// An object whose name equals the path of another object's older version is not brought.
func TestVersionsClash(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("")
	l.entry.Selection.Versions = wire.MirrorVersionsAll
	l.Put(archivetest.Camera, "v/1/a.jpg", "it", at(storm))
	l.Wait(l.Put(archivetest.Camera, "a.jpg", "a", at(storm)))
	if err := l.run(); err != nil && !errors.Is(err, push.ErrOwed) {
		t.Error(err)
	}
	l.want("without it", map[string]string{filepath.Join(archivetest.Camera, "a.jpg"): "a"})
}
