// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// tampered is a lab whose partner can be changed behind our back.
type tampered struct {
	*lab
	// damage gives a copy other bytes of the same size and time; lose removes one.
	damage, lose func(path string)
}

// tamper runs a test with a partner of each kind.
func tamper(t *testing.T, test func(t *testing.T, l *tampered)) {
	t.Helper()
	t.Parallel()
	t.Run("rsync", func(t *testing.T) {
		t.Parallel()
		l := &tampered{lab: newLab(t)}
		address, dir := testenv.RsyncDaemon(t, "")
		l.has = func() map[string]string { return l.read(dir) }
		var err error
		if l.mover, err = rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Scratch: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		l.damage = func(path string) {
			file := filepath.Join(dir, path)
			info, err := os.Stat(file)
			if err == nil {
				err = os.WriteFile(file, bytes.Repeat([]byte("x"), int(info.Size())), 0o600)
			}
			if err == nil {
				err = os.Chtimes(file, info.ModTime(), info.ModTime())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		l.lose = func(path string) {
			if err := os.Remove(filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
		test(t, l)
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		l := &tampered{lab: newLab(t)}
		l.toBucket()
		store := l.MinIO.Bucket(t, "partner")
		l.damage = func(path string) {
			key := "mirror/thule/" + path
			info, err := store.Head(t.Context(), key)
			if err == nil {
				err = store.Put(t.Context(), key, bytes.NewReader(bytes.Repeat([]byte("x"), int(info.Size))), info.Size, objectstore.PutOptions{Metadata: info.Metadata})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		l.lose = func(path string) {
			if err := store.Delete(t.Context(), "mirror/thule/"+path); err != nil {
				t.Fatal(err)
			}
		}
		test(t, l)
	})
}

// A run finds what became of copies since, though nothing is new here, and mends it.
func TestOlderCopies(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 100
		_, want := l.days(3)
		l.push(6)
		if n := l.last.Report().Compared; n != 0 {
			t.Errorf("%d copies that the run moved are compared once more", n)
		}
		l.damage("allsky-1/00.jpg")
		l.lose("allsky-1/04.jpg")
		l.push(2)
		if p := l.last.Report(); p.Compared != 4 || l.last.Differing() != 2 {
			t.Errorf("%d differ, %+v", l.last.Differing(), p)
		}
		l.want("mended", want)
		l.push(0)
		if has := l.mirrored("2015-03-17"); has.Objects != 3 {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// A comparison of sizes accepts other bytes, and finds a copy that is gone; None compares nothing.
func TestModes(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent, l.entry.Verify = 100, wire.MirrorVerifySize
		l.days(2)
		l.push(4)
		l.damage("allsky-1/00.jpg")
		l.lose("allsky-1/02.jpg")
		l.push(1)
		if has := l.has(); has["allsky-1/00.jpg"] != "xxxxxxxx" || has["allsky-1/02.jpg"] != "object 2" {
			t.Errorf("the partner has %v", has)
		}
		l.entry.Verify = wire.MirrorVerifyNone
		l.lose("allsky-1/02.jpg")
		l.push(0)
		if p := l.last.Report(); p.Compared != 0 || len(l.has()) != 3 {
			t.Errorf("%+v", p)
		}
	})
}

// Each run compares a share of the copies, others each time; a run that follows notices compares none.
func TestShares(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 25
		_, want := l.days(20)
		l.push(40) // the first of four runs compares none: it has moved all
		l.damage("allsky-1/00.jpg")
		l.lose("allsky-1/39.jpg")
		l.following = true
		l.push(0)
		l.following = false
		compared := int64(0)
		for run := range 4 {
			if err := l.run(); err != nil {
				t.Fatal(err)
			}
			n := l.last.Report().Compared + l.last.Report().Objects
			if n < plan.LeastCompared || n > 25 {
				t.Errorf("run %d compares %d of 40", run, n)
			}
			compared += n
		}
		if compared < 40 {
			t.Errorf("four runs compare %d of 40", compared)
		}
		l.want("after four runs", want)
	})
}

// The partner's disk is not mounted: a run that finds more than a few copies of its share missing compares and brings them all.
func TestNotMounted(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 5
		_, want := l.days(20)
		l.push(40)
		for path := range want {
			l.lose(path)
		}
		l.push(40)
		l.want("after one run", want)
		if has := l.mirrored("2015-03-17"); has.Objects != 20 {
			t.Errorf("ledger: %+v", has)
		}
		l.push(0)
		if n := l.last.Report().Compared; n < plan.LeastCompared || n > 20 {
			t.Errorf("once all is there a run compares %d of 40", n)
		}
	})
}

// A run with force that fails is not forgotten: what it could not verify is not confirmed, and the next run compares it.
func TestForceFails(t *testing.T) {
	t.Parallel()
	for _, mode := range []liar.Mode{liar.Portal, liar.FailsAfter, liar.Forgets} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			proxy := l.toLiar()
			_, want := l.days(10)
			l.push(20)
			for path := range want {
				if err := l.MinIO.Bucket(t, "partner").Delete(t.Context(), "mirror/thule/"+path); err != nil {
					t.Fatal(err)
				}
			}
			proxy.Set(mode)
			l.force = true
			if err := l.run(); err == nil {
				t.Error("the run succeeded")
			}
			for _, day := range []wire.Day{"2015-03-17", "2015-03-18"} {
				if has := l.mirrored(day); has.Objects != 0 {
					t.Errorf("the partner is said to have %+v of %s", has, day)
				}
			}
			proxy.Set("")
			l.force, l.following = false, true
			if err := l.run(); err != nil {
				t.Error(err)
			}
			l.want("after the next run", want)
			if has := l.mirrored("2015-03-18"); has.Objects != 10 {
				t.Errorf("ledger: %+v", has)
			}
		})
	}
}

// A run that only verifies says in the ledger what is not there, and the next one brings it.
func TestVerifyOnly(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		all, want := l.days(2)
		l.push(4)
		l.lose("allsky-1/00.jpg")
		l.verifyOnly = true
		if err := l.run(); !errors.Is(err, push.ErrOwed) || l.last.Differing() != 1 {
			t.Errorf("%v, %d differ", err, l.last.Differing())
		}
		if has := l.mirrored("2015-03-17"); has.Objects != 1 || has.Digest != all[1].Digest {
			t.Errorf("ledger: %+v", has)
		}
		if has := l.mirrored("2015-03-18"); has.Objects != 2 {
			t.Errorf("ledger of another day: %+v", has)
		}
		l.verifyOnly = false
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("mended", want)
		if has := l.mirrored("2015-03-17"); has.Objects != 2 || has.Digest != all[0].Digest.Plus(all[1].Digest) {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// The next run writes again what the ledger has lost of what the partner confirmed.
func TestLedgerLost(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 5
		all, _ := l.days(2)
		l.push(4)
		kv, err := l.JetStream.KeyValue(t.Context(), wire.LedgerBucket(archivetest.Site))
		if err == nil {
			err = kv.Delete(t.Context(), wire.LedgerKey(archivetest.Camera, "2015-03-17", wire.StepMirrored, partner))
		}
		if err != nil {
			t.Fatal(err)
		}
		l.push(0)
		if has := l.mirrored("2015-03-17"); has.Objects != 2 || has.Digest != all[0].Digest.Plus(all[1].Digest) {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// A run of a part of a day leaves alone what the ledger says of the rest.
func TestPart(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		all, want := l.days(3)
		l.to = all[1].ReceivedAt
		l.push(1)
		if has := l.mirrored("2015-03-17"); has.Objects != 0 {
			t.Errorf("of a day of which a part is there the ledger says %+v", has)
		}
		l.to = wire.Record{}.ReceivedAt
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want("all", want)
		l.to, l.force = all[1].ReceivedAt, true
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		if has := l.mirrored("2015-03-17"); has.Objects != 3 {
			t.Errorf("ledger: %+v", has)
		}
	})
}

// Another place at the partner gets everything, though the partner has confirmed it at the first one.
func TestAnotherPlace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("")
	all, want := l.days(2)
	l.push(4)
	l.entry.Template = "{instrument}/{year}/{name}"
	l.entry.Generation++
	l.push(4)
	if has := l.has(); len(has) != 8 || has["allsky-1/2015/"+wire.ShortID(all[0].ReceivedAt, all[0].Digest)+".jpg"] != want["allsky-1/00.jpg"] {
		t.Errorf("the partner has %v", has)
	}
}

// The partner's folder is gone with all that was in it: the next run brings everything again, and what was retracted meanwhile is not
// there anyway.
func TestEmptied(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	address, dir := testenv.RsyncDaemon(t, "")
	l.has = func() map[string]string { return l.read(dir) }
	var err error
	l.mover, err = rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data", Path: "a/b"}}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l.entry.VerifyPercent, l.entry.Retractions = 100, wire.MirrorTombstone
	all, want := l.days(2)
	l.push(4)
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	l.become(&all[0], wire.StateRetracted, "a lamp")
	l.push(3)
	if p := l.last.Report(); p.Removed != 0 {
		t.Errorf("%+v", p)
	}
	delete(want, "allsky-1/00.jpg")
	there := map[string]string{}
	for path, text := range want {
		there["a/b/"+path] = text
	}
	l.want("all that is current", there)
}

// All bytes that go to a bucket, or are read back, count against the limits.
func TestPaced(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var moved counter
	store := l.MinIO.Bucket(t, "partner")
	l.mover = s3.New(s3.Config{Store: store, Connections: 2, Moved: moved.add})
	large := string(bytes.Repeat([]byte("large 17 bytes..\n"), 2<<20))
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "large.fits", large, at(storm)))
	l.push(2)
	if want := 2 * int64(len(large)+len("one")); moved.n.Load() != want {
		t.Errorf("%d bytes count, want %d: sent, and read back", moved.n.Load(), want)
	}
}

// A body that is sent slowly, since a limit says so, is no connection that stands still.
func TestSlow(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.MinIO.Bucket(t, "partner")
	cfg := l.MinIO.Config("partner")
	cfg.StallTimeout = 3 * time.Second // all pauses together are longer; a server that is busy does not stand still for as long
	store, err := objectstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.mover = s3.New(s3.Config{Store: store, Connections: 1, Moved: func(int) { time.Sleep(125 * time.Millisecond) }})
	l.Wait(l.Put(archivetest.Camera, "1.jpg", string(bytes.Repeat([]byte("slow"), 32<<10)), at(storm)))
	l.push(1)
}
