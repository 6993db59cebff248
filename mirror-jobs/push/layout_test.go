// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// Objects that the template does not tell apart have paths of their own all the same, and each goes alone.
func TestLayoutSamePath(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Template = "{instrument}/{year}/{month}/{day}/{digest:16}.tar.gz"
		yesterday := func(r *wire.Record) { from := storm; r.ObservedFrom = &from }
		one := l.Put(archivetest.Camera, "z.jpg", "the same", at(storm))
		l.Put(archivetest.Camera, "b.jpg", "the same", at(storm.Add(time.Second)))
		l.Put(archivetest.Camera, "c.jpg", "the same", yesterday, at(storm.AddDate(0, 0, 1)))
		l.Wait(l.Put(archivetest.Camera, "a.jpg", "the same", at(storm.Add(time.Minute))))
		l.push(4)
		first, name := "allsky-1/2015/03/17/", one.Digest.String()[:16]
		want := map[string]string{
			first + name + ".tar.gz": "the same", first + name + "~2.tar.gz": "the same", first + name + "~3.tar.gz": "the same",
			"allsky-1/2015/03/18/" + name + ".tar.gz": "the same",
		}
		l.want("paths", want)
		if has := l.mirrored("2015-03-17"); has.Objects != 3 {
			t.Errorf("the ledger says that the partner has %+v", has)
		}
		l.become(&one, wire.StateRetracted, "a lamp")
		l.push(0)
		delete(want, first+name+".tar.gz")
		l.want("without the one that was retracted", want)
		l.Wait(l.Put(archivetest.Camera, "d.jpg", "the same", at(storm.Add(time.Hour))))
		want[first+name+"~4.tar.gz"] = "the same"
		l.push(1)
		l.want("a path is that of one object forever", want)
		l.verifyOnly = true
		if err := l.run(); err != nil {
			t.Errorf("verified: %v", err)
		}
	})
}

// Objects that two instruments send under one name have two paths, and one is removed without the other.
func TestLayoutTwoInstruments(t *testing.T) {
	t.Parallel()
	l := newLab(t, wire.InstrumentEntry{Instrument: "other", UID: "other", Generation: 1, Station: "rank", Access: &wire.AccessEntry{Archive: wire.AccessPublic}})
	l.toDaemon("")
	l.entry.Template, l.entry.SafetyStopPercent = "{year}/{instrument}_{name}", 100
	one := l.Put(archivetest.Camera, "night.fits", "one", named("night.fits"), at(storm))
	l.Wait(l.Put("other", "night.fits", "other", named("night.fits"), at(storm)))
	l.push(2)
	want := map[string]string{"2015/allsky-1_night.fits": "one", "2015/other_night.fits": "other"}
	l.want("both", want)
	l.become(&one, wire.StateRetracted, "a lamp")
	l.push(0)
	delete(want, "2015/allsky-1_night.fits")
	l.want("the other one stays", want)
}

// A template by which objects would overwrite each other is refused, also where it was declared before the API refused it.
func TestLayoutRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("")
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	for _, template := range []string{"{instrument}/{year}/{month}/{day}/{sequence}.txt", "{station}/{name}", "{instrument}/{year}/{month}/{day}/a"} {
		l.entry.Template = template
		var p *push.Problem
		if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonInvalidTemplate {
			t.Errorf("%s: %v", template, err)
		}
	}
	l.want("nothing", map[string]string{})
}

// An object that is owed because of its path is named, with what to do; and the rest comes.
func TestLayoutFolderOfAnother(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("")
	l.Put(archivetest.Camera, "a", "file", at(storm))
	l.Put(archivetest.Camera, "a/b", "in a folder", at(storm))
	l.Wait(l.Put(archivetest.Camera, "c", "the rest", at(storm)))
	err := l.run()
	var p *push.Problem
	if !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), `"allsky-1/a/b"`) || !strings.Contains(err.Error(), "spec.layout.template") ||
		!errors.As(err, &p) || p.Reason != wire.MirrorReasonInvalidTemplate {
		t.Errorf("%v", err)
	}
	l.want("the rest", map[string]string{"allsky-1/a": "file", "allsky-1/c": "the rest"})
}

// An object that can have no path is owed, and the rest comes.
func TestNoPath(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.entry.Selection.Versions = wire.MirrorVersionsAll
		l.Put(archivetest.Camera, "c", "the rest", at(storm))
		l.Wait(l.Put(archivetest.Camera, "v/2/x", "of an earlier version", at(storm)))
		var p *push.Problem
		err := l.run()
		if !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), `"allsky-1/v/2/x"`) || !errors.As(err, &p) || p.Reason != wire.MirrorReasonInvalidTemplate {
			t.Errorf("%v", err)
		}
		if owed := l.last.Owed(); owed.Objects != 1 || owed.Bytes != 21 || !owed.Oldest.Equal(storm) || l.last.Report().Failed != 1 {
			t.Errorf("%+v, %+v", owed, l.last.Report())
		}
		l.want("the rest", map[string]string{"allsky-1/c": "the rest"})
	})
}

// Objects that the partner does not take, and objects that the archive has lost, are owed for that reason.
func TestOwedReasons(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := l.toDaemon("")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "allsky-1/1.jpg/not empty"), 0o755)); err != nil {
		t.Fatal(err)
	}
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !p.Answered || !errors.Is(err, push.ErrOwed) {
		t.Errorf("a folder is in its place: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "allsky-1")); err != nil {
		t.Fatal(err)
	}
	lost := l.Put(archivetest.Camera, "2.jpg", "two", at(storm))
	l.Wait(lost)
	if err := l.Store.Delete(t.Context(), lost.Key); err != nil {
		t.Fatal(err)
	}
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonStore || !p.Answered || !errors.Is(err, push.ErrOwed) {
		t.Errorf("the archive has lost it: %v", err)
	}
}

// Objects that the partner has already are compared, and not moved.
func TestThereAlready(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		large := strings.Repeat("large 17 bytes..\n", 1<<20)
		l.Put(archivetest.Camera, "1.fits", large, at(storm))
		l.Wait(l.Put(archivetest.Camera, "2.fits", large, at(storm)))
		l.push(2)
		l.force = true
		l.push(0)
		if r := l.last.Report(); r.Bytes != 0 || r.TotalObjects != 0 || r.TotalBytes != 0 || r.Compared != 2 {
			t.Errorf("nothing is owed: %+v", r)
		}
		l.damage("allsky-1/1.fits")
		l.push(1)
		if r := l.last.Report(); r.Bytes != int64(len(large)) || r.TotalObjects != 1 || r.Compared != 1 {
			t.Errorf("one is damaged: %+v", r)
		}
	})
}

// A bucket that does not exist is named.
func TestNoBucket(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	store, err := objectstore.Open(l.MinIO.Config("nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	l.mover = s3.New(s3.Config{Store: store, Bucket: "nowhere"})
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !strings.Contains(err.Error(), `"nowhere"`) {
		t.Errorf("%v", err)
	}
}
