// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/feed-server/mirror"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

var storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)

// lab is an archive, and a folder that mirrors it.
type lab struct {
	*archivetest.Lab
	dir string
	plan.Policy
	plan.Selection
	instruments []string
	force       bool
	acceptLoss  bool
	// token of the reader that pulls; empty: it is anonymous.
	token string
	last  pull.Figures
	// tries of a request; 0: the client's own.
	tries int
	log   bytes.Buffer
	// seen is called with the run's figures when bytes come; nil: not called.
	seen func(pull.Figures)
	// said is called with each line of the log; nil: not called.
	said func(line string)
}

// Write implements io.Writer, for the log.
func (l *lab) Write(line []byte) (int, error) {
	if l.said != nil {
		l.said(string(line))
	}
	return l.log.Write(line)
}

func newLab(t *testing.T, more ...wire.InstrumentEntry) *lab {
	t.Helper()
	l := &lab{Lab: archivetest.New(t, more...), dir: t.TempDir(), Policy: plan.Policy{Prune: plan.PruneWhenExpired, Retractions: plan.RetractionsTombstone}}
	bundles := bundle.New(bundle.Config{Site: archivetest.Site, Catalog: l.Catalog, Store: l.Store, AccessCheck: l.AccessCheck, Logger: l.Logger})
	l.Open(mirror.New(mirror.Config{Site: archivetest.Site, Catalog: l.Catalog, AccessCheck: l.AccessCheck, JetStream: l.JetStream, Bundles: bundles.AtOnce}).Endpoints(), bundles.Endpoints())
	return l
}

func at(received time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ReceivedAt = received.UTC() }
}

// from makes one run from an address.
func (l *lab) from(ctx context.Context, address string) error {
	l.Helper()
	u, err := url.Parse(address)
	if err != nil {
		l.Fatal(err)
	}
	f, err := folder.Open(l.dir)
	if err != nil {
		return err
	}
	progress := &pull.Progress{}
	client := https.New(https.Config{URL: u, Connections: 4, Agent: "substorm-mirror", Token: l.token, Patience: https.Patience{Tries: l.tries}, Received: func(bytes int) {
		progress.Receive(bytes)
		if l.seen != nil {
			l.seen(progress.Figures())
		}
	}})
	defer client.Close()
	err = pull.Run(ctx, pull.Config{
		Source: client, Folder: f, Instruments: l.instruments, Selection: l.Selection, Policy: l.Policy, Force: l.force, AcceptLoss: l.acceptLoss, Connections: 4, Progress: progress,
		Logger: slog.New(slog.NewTextHandler(l, nil)),
	})
	l.last = progress.Figures()
	return errors.Join(err, f.Close())
}

// pull makes one run, which must do all, and returns what it asked.
func (l *lab) pull() (asked []string) {
	l.Helper()
	l.Asked()
	if err := l.from(l.Context(), l.URL); err != nil {
		l.Fatal(err)
	}
	return l.Asked()
}

// want compares the files with what they should hold.
func (l *lab) want(what string, want map[string]string) {
	l.Helper()
	if diff := cmp.Diff(want, l.files()); diff != "" {
		l.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// files are those of the mirror.
func (l *lab) files() map[string]string {
	l.Helper()
	got := map[string]string{}
	err := fs.WalkDir(os.DirFS(l.dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".substorm":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		data, err := os.ReadFile(filepath.Join(l.dir, path))
		got[path] = string(data)
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	return got
}

func TestPull(t *testing.T) {
	t.Parallel()
	const other = "allsky-2"
	l := newLab(t, wire.InstrumentEntry{Instrument: other, UID: "other", Generation: 1, MediaType: "image/jpeg", Access: archivetest.Public})
	today := time.Now().UTC().Truncate(24 * time.Hour)
	large := strings.Repeat("0123456789abcdef", 20<<20/16)
	l.Put(archivetest.Camera, "b/1.jpg", "one", at(storm))
	two := l.Put(archivetest.Camera, "b/2 æ%.jpg", "two", at(storm.Add(time.Minute)))
	l.Put(archivetest.Camera, "large.fits", large, at(storm.Add(time.Hour)))
	l.Wait(l.Put(archivetest.Camera, "now/1.jpg", "three", at(today.Add(time.Second))))
	want := map[string]string{"allsky-1/b/1.jpg": "one", "allsky-1/b/2 æ%.jpg": "two", "allsky-1/large.fits": large, "allsky-1/now/1.jpg": "three"}
	l.pull()
	l.want("first", want)
	if info, err := os.Stat(filepath.Join(l.dir, "allsky-1/b/1.jpg")); err != nil || !info.ModTime().Equal(storm) {
		t.Errorf("its time: %v %v", info, err)
	}
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}

	l.Wait(l.Put(archivetest.Camera, "now/2.jpg", "four", at(today.Add(2*time.Second))))
	l.Wait(l.Put(other, "5.jpg", "five", at(today.Add(3*time.Second))))
	want["allsky-1/now/2.jpg"], want["allsky-2/5.jpg"] = "four", "five"
	if asked := l.pull(); len(asked) != 4 || l.last.Objects != 2 {
		t.Errorf("one more of two instruments, for which root, days, lists and objects are asked once each: %q, %+v", asked, l.last)
	}
	l.want("one more of each", want)

	two.State, two.Reason = wire.StateRetracted, "a lamp"
	l.Announce(archivetest.Camera, two)
	l.Until("it is gone", func() bool { return strings.Contains(l.listOf("2015-03-17"), "State:Retracted") })
	delete(want, "allsky-1/b/2 æ%.jpg")
	l.pull()
	l.want("what was retracted", want)
	l.pull() // the tag of what was removed is known by now
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing changed since: %q", asked)
	}
}

// listOf returns the list of a day of the camera.
func (l *lab) listOf(day string) string {
	u, err := url.Parse(l.URL)
	if err != nil {
		l.Fatal(err)
	}
	all, err := https.New(https.Config{URL: u}).Lists(l.Context(), []mirrorindex.ListQuestion{{Instrument: archivetest.Camera, Day: wire.Day(day)}})
	if err != nil {
		l.Fatal(err)
	}
	return fmt.Sprintf("%+v", all)
}

func TestSafetyStop(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var all []wire.Record
	want := map[string]string{}
	for i := range 10 {
		name := fmt.Sprintf("%d.jpg", i)
		all = append(all, l.Put(archivetest.Camera, name, name, at(storm.Add(time.Duration(i)*time.Minute))))
		want["allsky-1/"+name] = name
	}
	l.Wait(all[9])
	l.pull()
	for i := range 2 {
		all[i].State = wire.StateRetracted
		l.Announce(archivetest.Camera, all[i])
	}
	l.Until("they are gone", func() bool { return strings.Count(l.listOf("2015-03-17"), "State:Retracted") == 2 })
	l.SafetyStop = 10
	var stop *plan.SafetyStopError
	for range 2 { // it is not forgotten
		if err := l.from(t.Context(), l.URL); !errors.As(err, &stop) || stop.Remove != 2 || stop.Held != 10 {
			t.Fatalf("%v", err)
		}
		l.want("nothing is removed", want)
	}
	l.force = true
	l.pull()
	delete(want, "allsky-1/0.jpg")
	delete(want, "allsky-1/1.jpg")
	l.want("with force", want)
	l.force, l.SafetyStop = false, 20 // one of eight
	for i := 2; i < 4; i++ {
		all[i].State = wire.StateRetracted
		l.Announce(archivetest.Camera, all[i])
		l.Until("one more is gone", func() bool { return strings.Count(l.listOf("2015-03-17"), "State:Retracted") == i+1 })
		if i == 2 {
			l.pull()
			delete(want, "allsky-1/2.jpg")
			l.want("one after a forced run", want)
		}
	}
	for range 2 {
		if err := l.from(t.Context(), l.URL); !errors.As(err, &stop) || stop.Remove != 1 || stop.Before != 1 || stop.Held != 7 {
			t.Fatalf("another one by the next run: %v", err)
		}
		l.want("nothing more is removed", want)
	}
}

// Two runs at once: the second one says so.
func TestBusy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	f, err := folder.Open(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.from(t.Context(), l.URL); !errors.Is(err, folder.ErrBusy) {
		t.Errorf("%v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l.pull()
}

// Objects that may not be read are not part of the mirror, and those that were read before stay.
func TestAccess(t *testing.T) {
	t.Parallel()
	hidden := wire.InstrumentEntry{Instrument: "hidden", UID: "hidden", Generation: 1, Access: archivetest.Restricted}
	l := newLab(t, hidden)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put("hidden", "2.jpg", "two", at(storm)))
	l.pull()
	l.want("what is public", map[string]string{"allsky-1/1.jpg": "one"})
	hidden.Access = archivetest.Public
	camera := l.Snapshot().Instruments[archivetest.Camera]
	l.Declare(camera, hidden)
	l.pull()
	all := map[string]string{"allsky-1/1.jpg": "one", "hidden/2.jpg": "two"}
	l.want("all", all)
	hidden.Access = archivetest.Restricted
	l.Declare(camera, hidden)
	l.pull()
	l.want("what was read stays", all)
}
