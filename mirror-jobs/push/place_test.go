// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// folders are movers to folders of a partner, which declare themselves.
var folders = map[string]func(*lab) func(folder string) push.Mover{
	"rsync": func(l *lab) func(string) push.Mover {
		address, dir := testenv.RsyncDaemon(l, "")
		l.has = func() map[string]string { return l.read(dir) }
		return func(folder string) push.Mover {
			to := wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data", Path: folder}}
			l.entry.Rsync = &to
			m, err := rsync.New(rsync.Config{MirrorRsync: to, Scratch: l.TempDir()})
			if err != nil {
				l.Fatal(err)
			}
			return m
		}
	},
	"s3": func(l *lab) func(string) push.Mover {
		l.toBucket()
		has := l.has
		l.has = func() map[string]string {
			all := map[string]string{}
			for path, text := range has() {
				all[strings.TrimPrefix(path, "mirror/thule/")] = text
			}
			return all
		}
		return func(folder string) push.Mover {
			l.entry.S3 = &wire.MirrorS3{Endpoint: l.MinIO.URL(), Bucket: "partner", Prefix: folder}
			return s3.New(s3.Config{Store: l.MinIO.Bucket(l, "partner"), Prefix: folder, Connections: 2})
		}
	},
}

// byFolders runs a test with a partner of each kind, and what moves its place to another folder.
func byFolders(t *testing.T, test func(t *testing.T, l *lab, move func(folder string))) {
	t.Helper()
	t.Parallel()
	for name, to := range folders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.entry.SafetyStopPercent = 100
			mover := to(l)
			l.former = map[string]push.Mover{}
			test(t, l, func(folder string) {
				l.mover = mover(folder)
				l.former[folder] = l.mover
				l.entry.Generation++
			})
		})
	}
}

// Copies of objects that are retracted or purged after the place of the copies was changed are removed at each place that they were
// brought to, and a purge is confirmed once they are.
func TestFormerPlaces(t *testing.T) {
	byFolders(t, func(t *testing.T, l *lab, move func(string)) {
		move("a")
		all, _ := l.days(2)
		l.push(4)
		move("b")
		l.push(4)
		l.entry.Template = "{instrument}/{id}"
		move("c")
		l.push(4)
		id := func(i int) string { return wire.ShortID(all[i].ReceivedAt, all[i].Digest) }
		want := map[string]string{}
		for i, text := range []string{"object 0", "object 1", "object 2", "object 3"} {
			name := "/allsky-1/" + all[i].Path
			want["a"+name], want["b"+name], want["c/allsky-1/"+id(i)] = text, text, text
		}
		l.want("at all places", want)

		asked := l.asks(&all[0])
		l.become(&all[0], wire.StatePurged, "a face")
		l.become(&all[2], wire.StateRetracted, "a lamp")
		b := l.former["b"]
		delete(l.former, "b")
		for range 2 {
			if err := l.run(); !errors.Is(err, push.ErrKept) || !strings.Contains(err.Error(), "nothing is at \"b\"") {
				t.Errorf("one place does not answer: %v", err)
			}
			if l.confirmed(asked) || l.last.Unconfirmed() != 1 {
				t.Errorf("the purge is confirmed, and a copy is there; %d unconfirmed", l.last.Unconfirmed())
			}
			for _, i := range []int{0, 2} {
				delete(want, "a/allsky-1/"+all[i].Path)
				delete(want, "c/allsky-1/"+id(i))
			}
			l.want("at the others they are gone", want)
		}
		l.former["b"] = b
		l.push(0)
		delete(want, "b/allsky-1/"+all[0].Path)
		delete(want, "b/allsky-1/"+all[2].Path)
		l.want("at all they are gone", want)
		if !l.confirmed(asked) || l.last.Unconfirmed() != 0 {
			t.Errorf("%t, %d unconfirmed", l.confirmed(asked), l.last.Unconfirmed())
		}
	})
}

// A place to which copies come again is one, and those that lay there before are known.
func TestPlaceAgain(t *testing.T) {
	byFolders(t, func(t *testing.T, l *lab, move func(string)) {
		move("a")
		all, _ := l.days(1)
		l.push(2)
		move("b")
		l.push(2)
		l.become(&all[0], wire.StateRetracted, "a lamp")
		move("a")
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("gone at both", map[string]string{"a/allsky-1/01.jpg": "object 1", "b/allsky-1/01.jpg": "object 1"})
	})
}

// An Instrument that is not selected any more: what is purged goes at each place, too.
func TestFormerPlaceUnselected(t *testing.T) {
	byFolders(t, func(t *testing.T, l *lab, move func(string)) {
		move("a")
		all, _ := l.days(1)
		l.push(2)
		l.entry.Selection.Instruments = nil
		move("b")
		asked := l.asks(&all[0])
		l.become(&all[0], wire.StatePurged, "a face")
		l.push(0)
		l.want("gone", map[string]string{"a/allsky-1/01.jpg": "object 1"})
		if !l.confirmed(asked) {
			t.Error("the purge is not confirmed")
		}
	})
}

// The safety stop counts the copies of all places.
func TestFormerPlaceSafetyStop(t *testing.T) {
	byFolders(t, func(t *testing.T, l *lab, move func(string)) {
		l.entry.SafetyStopPercent = 10
		move("a")
		all, want := l.days(10)
		l.push(20)
		move("b")
		l.push(20)
		l.become(&all[0], wire.StateRetracted, "a lamp")
		l.become(&all[10], wire.StateRetracted, "a lamp")
		l.push(0) // four of forty
		if n := len(l.has()); n != 2*(len(want)-2) {
			t.Errorf("the partner has %d copies", n)
		}
		for _, i := range []int{1, 2, 11} {
			l.become(&all[i], wire.StateRetracted, "a lamp")
		}
		var p *push.Problem
		if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonSafetyStop || !strings.Contains(err.Error(), "6 of 36") {
			t.Errorf("%v", err)
		}
	})
}

// The place that copies were brought to before is another partner's now: what it has by its own spec stays, and what is purged of it is not
// confirmed while the copy is there.
func TestFormerPlaceOfAnother(t *testing.T) {
	byFolders(t, func(t *testing.T, l *lab, move func(string)) {
		move("a")
		all, _ := l.days(1)
		l.push(2)
		other := l.entry
		other.Partner = "other"
		move("b")
		l.push(2)
		snapshot := *l.Snapshot()
		snapshot.Mirrors = map[string]wire.MirrorEntry{partner: l.entry, "other": other}
		l.Set(&snapshot)
		asked := l.asks(&all[1])
		l.become(&all[0], wire.StateRetracted, "a lamp")
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("the other one's stays", map[string]string{"a/allsky-1/00.jpg": "object 0", "a/allsky-1/01.jpg": "object 1", "b/allsky-1/01.jpg": "object 1"})
		l.become(&all[1], wire.StatePurged, "a face")
		if err := l.run(); !errors.Is(err, push.ErrKept) || !strings.Contains(err.Error(), `MirrorPartner "other"`) || l.confirmed(asked) {
			t.Errorf("%v, confirmed %t", err, l.confirmed(asked))
		}
		l.want("the other one's stays", map[string]string{"a/allsky-1/00.jpg": "object 0", "a/allsky-1/01.jpg": "object 1"})
	})
}
