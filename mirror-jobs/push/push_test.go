// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

const partner = "uni"

var storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)

func at(received time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ReceivedAt = received.UTC() }
}

func named(name string) func(*wire.Record) {
	return func(r *wire.Record) { r.Name = name }
}

// counter counts bytes.
type counter struct{ n atomic.Int64 }

func (c *counter) add(bytes int) { c.n.Add(int64(bytes)) }

// lab is an archive, and a partner.
type lab struct {
	*archivetest.Lab
	entry wire.MirrorEntry
	mover push.Mover
	// has returns what the partner has, by path.
	has               func() map[string]string
	force, verifyOnly bool
	following         bool
	to                time.Time
	patience          time.Duration
	// former are movers to places where copies were brought to before, by their rsync path or S3 prefix.
	former map[string]push.Mover
	last   *push.Progress
}

func newLab(t *testing.T, more ...wire.InstrumentEntry) *lab {
	t.Helper()
	l := &lab{Lab: archivetest.New(t, more...), entry: wire.MirrorEntry{
		Partner: partner, Direction: wire.MirrorPush, Selection: wire.MirrorSelection{Instruments: []string{archivetest.Camera}, Versions: wire.MirrorVersionsCurrent},
		Verify: wire.MirrorVerifyDigest, Retractions: wire.MirrorDelete, Prune: wire.MirrorPruneNever, SafetyStopPercent: 60,
	}}
	l.Open()
	for _, in := range more {
		l.entry.Selection.Instruments = append(l.entry.Selection.Instruments, in.Instrument)
	}
	return l
}

// toDaemon has the partner be an rsync daemon, whose folder it returns.
func (l *lab) toDaemon(settings string, change ...func(*rsync.Config)) (dir string) {
	l.Helper()
	address, dir := testenv.RsyncDaemon(l, settings)
	l.has = func() map[string]string { return l.read(dir) }
	cfg := rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Credentials: l.TempDir(), Scratch: l.TempDir()}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if l.mover, err = rsync.New(cfg); err != nil {
		l.Fatal(err)
	}
	return dir
}

func (l *lab) read(dir string) map[string]string {
	l.Helper()
	got := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		got[path] = string(data)
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	return got
}

// toBucket has the partner be a bucket.
func (l *lab) toBucket() {
	l.Helper()
	store := l.MinIO.Bucket(l, "partner")
	l.mover = s3.New(s3.Config{Store: store, Prefix: "mirror/thule", Connections: 4})
	l.has = func() map[string]string {
		got := map[string]string{}
		for info, err := range store.List(l.Context(), "", "") {
			if err != nil {
				l.Fatal(err)
			}
			body, _, err := store.Get(l.Context(), info.Key, objectstore.All)
			if err != nil {
				l.Fatal(err)
			}
			data, err := io.ReadAll(body)
			if err = errors.Join(err, body.Close()); err != nil {
				l.Fatal(err)
			}
			got[strings.TrimPrefix(info.Key, "mirror/thule/")] = string(data)
		}
		return got
	}
}

// run makes one run.
func (l *lab) run() error {
	l.Helper()
	book, err := push.OpenKV(l.Context(), l.JetStream, archivetest.Site, partner)
	if err != nil {
		l.Fatal(err)
	}
	l.last = &push.Progress{}
	return push.Run(l.Context(), push.Config{
		Site: archivetest.Site, Entry: l.entry, Registry: l.Snapshot, Catalog: l.Catalog, Store: l.Store, Mover: l.mover, Book: book,
		At: func(_ context.Context, p push.Place) (push.Mover, error) {
			name := ""
			if p.S3 != nil {
				name = p.S3.Prefix
			} else if p.Rsync != nil {
				name = p.Rsync.Daemon.Path
			}
			if m, is := l.former[name]; is {
				return m, nil
			}
			return nil, fmt.Errorf("nothing is at %q", name)
		},
		Pause: func(context.Context) error { return nil }, Force: l.force, VerifyOnly: l.verifyOnly, Following: l.following, To: l.to, Patience: l.patience, Progress: l.last, Logger: slog.New(slog.DiscardHandler),
	})
}

// push makes a run that does all, of so many objects.
func (l *lab) push(objects int64) {
	l.Helper()
	if err := l.run(); err != nil {
		l.Fatal(err)
	}
	if p := l.last.Report(); p.Objects != objects {
		l.Errorf("%d objects were moved, want %d: %+v", p.Objects, objects, p)
	}
}

func (l *lab) want(what string, want map[string]string) {
	l.Helper()
	if diff := cmp.Diff(want, l.has()); diff != "" {
		l.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// mirrored is the partner's column of the ledger.
func (l *lab) mirrored(day wire.Day) wire.Totals {
	l.Helper()
	kv, err := l.JetStream.KeyValue(l.Context(), wire.LedgerBucket(archivetest.Site))
	if err != nil {
		l.Fatal(err)
	}
	e, err := kv.Get(l.Context(), wire.LedgerKey(archivetest.Camera, day, wire.StepMirrored, partner))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.Totals{}
	}
	if err != nil {
		l.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		l.Fatal(err)
	}
	return entry.Sum()
}

// Each mover brings changed objects, and removes retracted ones.
func TestPush(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(*lab){"rsync": func(l *lab) { l.toDaemon("") }, "s3": (*lab).toBucket} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			to(l)
			large := strings.Repeat("large 17 bytes..\n", 2<<20)
			one := l.Put(archivetest.Camera, "b/1.jpg", "one", at(storm))
			two := l.Put(archivetest.Camera, "b/2 æ%.jpg", "two", at(storm.Add(time.Minute)))
			l.Wait(l.Put(archivetest.Camera, "large.fits", large, at(storm.AddDate(0, 0, 1))))
			want := map[string]string{"allsky-1/b/1.jpg": "one", "allsky-1/b/2 æ%.jpg": "two", "allsky-1/large.fits": large}
			l.push(3)
			l.want("first", want)
			if has := l.mirrored("2015-03-17"); has.Objects != 2 || has.ObjectBytes != 6 || has.Digest != one.Digest.Plus(two.Digest) {
				t.Errorf("ledger: %+v", has)
			}
			l.push(0)

			three := l.Put(archivetest.Camera, "c.jpg", "three", at(storm.Add(time.Hour)))
			l.Wait(three)
			want["allsky-1/c.jpg"] = "three"
			l.push(1)
			l.want("one more", want)
			if has := l.mirrored("2015-03-17"); has.Objects != 3 || has.Digest != one.Digest.Plus(two.Digest).Plus(three.Digest) {
				t.Errorf("ledger: %+v", has)
			}

			two.State, two.Reason = wire.StateRetracted, "a lamp"
			l.Announce(archivetest.Camera, two)
			l.Until("it is gone", func() bool {
				r, err := l.Catalog.Find(t.Context(), archivetest.Camera, "b/2 æ%.jpg")
				return err == nil && r.State == wire.StateRetracted
			})
			delete(want, "allsky-1/b/2 æ%.jpg")
			if err := l.run(); err != nil {
				t.Fatal(err)
			}
			l.want("what was retracted", want)
			if has := l.mirrored("2015-03-17"); has.Objects != 2 || has.Digest != one.Digest.Plus(three.Digest) {
				t.Errorf("ledger: %+v", has)
			}
			l.verifyOnly = true
			if err := l.run(); err != nil {
				t.Errorf("verified: %v", err)
			}
		})
	}
}

// Changes made at the partner are found, and a run with force repairs them.
func TestVerify(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	address, dir := testenv.RsyncDaemon(l, "")
	l.has = func() map[string]string { return l.read(dir) }
	var err error
	if l.mover, err = rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Scratch: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.push(2)
	file := filepath.Join(dir, "allsky-1/1.jpg")
	if err := errors.Join(os.WriteFile(file, []byte("ONE"), 0o600), os.Chtimes(file, storm, storm), os.Remove(filepath.Join(dir, "allsky-1/2.jpg"))); err != nil {
		t.Fatal(err)
	}
	l.verifyOnly = true
	if err := l.run(); !errors.Is(err, push.ErrOwed) || l.last.Differing() != 2 {
		t.Errorf("%v, %d differ", err, l.last.Differing())
	}
	l.verifyOnly, l.force = false, true
	// rsync takes a file for the same that has its size and time: verification says that it is not.
	if err := l.run(); err != nil || l.last.Differing() != 1 {
		t.Errorf("%v, %d differ", err, l.last.Differing())
	}
	l.want("mended", map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2.jpg": "two"})
}

// A partner as a whole takes nothing: why, and nothing is noted.
func TestProblems(t *testing.T) {
	t.Parallel()
	credentials := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(credentials, wire.MirrorFilePassword), []byte("wrong\n"), 0o600),
		os.WriteFile(filepath.Join(credentials, "secrets"), []byte("user:right\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	auth := "auth users = user\nsecrets file = " + filepath.Join(credentials, "secrets") + "\n"
	for _, c := range []struct {
		name, settings string
		change         func(*rsync.Config)
		reason, says   string
	}{
		{"a wrong password", auth, func(c *rsync.Config) { c.Credentials, c.Daemon.User = credentials, "user" }, wire.MirrorReasonAccessDenied, "passwordSecretKeyRef"},
		{"no module", "", func(c *rsync.Config) { c.Daemon.Module = "other" }, wire.MirrorReasonProtocol, "Unknown module"},
		{"nobody", "", func(c *rsync.Config) { c.Daemon.Address = testenv.Loopback(1) }, wire.MirrorReasonUnreachable, testenv.Loopback(1)},
		{"read only", "read only = yes\n", func(*rsync.Config) {}, wire.MirrorReasonAccessDenied, "module is read only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.toDaemon(c.settings, c.change)
			l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
			var p *push.Problem
			if err := l.run(); !errors.As(err, &p) || p.Reason != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if has := l.mirrored("2015-03-17"); has.Objects != 0 {
				t.Errorf("ledger: %+v", has)
			}
		})
	}
}

// Objects that are under embargo, or Restricted to others, are not brought; and layout.template says where the rest goes.
func TestSelection(t *testing.T) {
	t.Parallel()
	fresh := wire.InstrumentEntry{Instrument: "fresh", UID: "fresh", Generation: 1, Station: "rank", Access: &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds()}}
	hidden := wire.InstrumentEntry{Instrument: "hidden", UID: "hidden", Generation: 1, Access: archivetest.Restricted}
	l := newLab(t, fresh, hidden)
	l.toDaemon("")
	l.entry.Template = "{station}/{year}/{instrument}_{name}"
	l.Put("fresh", "old.csv", "1", named("old.csv"), at(storm))
	l.Put("fresh", "new.csv", "2", named("new.csv"), at(time.Now()))
	l.Wait(l.Put("hidden", "secret.csv", "3", at(storm)))
	l.push(1)
	l.want("what may go", map[string]string{"rank/2015/fresh_old.csv": "1"})
	l.entry.Selection.Embargoed = true
	l.entry.Generation++
	l.push(1)
	l.want("with what is under embargo", map[string]string{"rank/2015/fresh_old.csv": "1", fmt.Sprintf("rank/%d/fresh_new.csv", time.Now().UTC().Year()): "2"})
}
