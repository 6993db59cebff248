// SPDX-License-Identifier: Apache-2.0

//go:build linux

package importer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/wire"
)

func namedKey(f frame) string { return wire.NamedKey(site, instrument, f.name, 1) }

// TestFolder: a folder is imported, with a report of what cannot be; then again
// with nothing changed, and with some changed.
func TestFolder(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	good := frames(40)
	good[7].name = strings.Replace(good[7].name, "fits", "æøå #1 €", 1)
	writeFiles(t, dir, good...)
	writeFiles(t, dir, frame{"README", "no frame", good[0].at}, frame{"2015/13/17/rank_0000.fits", "no such month", good[0].at},
		frame{"2015/03/17/rank_0001.fits ", "name that ends with a space", good[0].at}, frame{"2015/03/17/rank_0002.fits", "", good[0].at},
		frame{"2015/03/17/rank_0003.fits", "young", time.Now()}, frame{"2015/03/17/rank_0004.fits", "early", time.Now().Add(time.Hour)},
		frame{"2015/03/17/rank_0007.fits", "zone of a clock at its epoch", time.Unix(-3600, 0)})
	day := filepath.Join(dir, "2015/03/17")
	if err := os.Symlink("rank_0630.fits", filepath.Join(day, "rank_0005.fits")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(day, "rank_0006.fits"), 0o600); err != nil {
		t.Fatal(err)
	}
	spaced := "2015/03/17/rank_0001.fits "
	reasons := map[string]Reason{"README": NameDoesNotFit, "2015/13/17/rank_0000.fits": NameDoesNotFit, spaced: NameNotAllowed,
		"2015/03/17/rank_0002.fits": Empty, "2015/03/17/rank_0003.fits": TooYoung, "2015/03/17/rank_0004.fits": TooYoung, "2015/03/17/rank_0007.fits": TooOld,
		"2015/03/17/rank_0005.fits": NotAFile, "2015/03/17/rank_0006.fits": NotAFile}

	dry, err := l.run(dir, "--dry-run", "--settle", "1h")
	if err == nil || len(l.listed()) > 0 {
		t.Errorf("dry run: %v", err)
	}
	size := uint64(0)
	for _, f := range good {
		size += uint64(len(f.body))
	}
	dry.wants(t, Summary{Seen: 49, Registered: 40, Bytes: size, DryRun: true})

	first, err := l.run(dir, "--settle", "1h")
	if err == nil || !strings.Contains(err.Error(), "9 could not be placed") {
		t.Errorf("got %v", err)
	}
	for _, r := range []result{dry, first} {
		if diff := cmp.Diff(reasons, r.reasons); diff != "" {
			t.Errorf("reasons (-want +got)\n%s", diff)
		}
	}
	first.wants(t, Summary{Seen: 49, Registered: 40, Bytes: size, BytesRead: size})
	all := l.await(40)
	for _, f := range good {
		compareRecord(t, f, all[namedKey(f)])
	}
	l.compareBodies(namedKey, good[0], good[7])
	l.compareLedger(all)
	for name := range reasons {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	l.must(dir).wants(t, Summary{Seen: 40, Unchanged: 40})

	changed, added, touched := good[3], frames(41)[40], good[5]
	changed.body, changed.at = "frame 3, reduced again", changed.at.Add(time.Hour)
	touched.at = touched.at.Add(time.Hour)
	writeFiles(t, dir, changed, added, touched)
	third := l.must(dir)
	third.wants(t, Summary{Seen: 41, Registered: 2, Versions: 1, Unchanged: 38, Touched: 1,
		Bytes: uint64(len(changed.body) + len(added.body)), BytesRead: uint64(len(changed.body) + len(added.body) + len(touched.body))})
	if !slices.Equal(third.versions, []string{changed.name}) {
		t.Errorf("new versions: %q", third.versions)
	}
	all = l.await(42)
	l.compareLedger(all)
	l.compareBodies(namedKey, good[3], added)
	l.compareBodies(func(f frame) string { return wire.NamedKey(site, instrument, f.name, 2) }, changed)
}

// compareRecord compares what is listed of a frame with what the frame is.
func compareRecord(t *testing.T, f frame, got []wire.Record) {
	t.Helper()
	if len(got) != 1 {
		t.Errorf("%s is listed %d times", f.name, len(got))
		return
	}
	r := got[0]
	from, err := time.Parse("2006/01/02/rank_1504", f.name[:len("2006/01/02/rank_1504")])
	if err != nil {
		t.Fatal(err)
	}
	to := from.Add(time.Minute - 1)
	if r.ObservedFrom == nil || !r.ObservedFrom.Equal(from) || !r.ObservedTo.Equal(to) || r.TimeSource != wire.TimeSourceName ||
		!r.ReceivedAt.Equal(f.at) || r.Size != int64(len(f.body)) || r.Name != f.name || !r.Backfill || r.Gateway != wire.ImportWriter || r.Incarnation == "" ||
		r.MediaType != "application/octet-stream" {
		t.Errorf("%s is listed as %+v", f.name, r)
	}
}

// TestNamesThatClash: two trees with the same names lose nothing to each other.
func TestNamesThatClash(t *testing.T) {
	l, a, b := newLab(t), t.TempDir(), t.TempDir()
	of := frames(3)
	writeFiles(t, a, of...)
	other := slices.Clone(of)
	other[0].body, other[1].at = "of another tree", of[1].at.Add(time.Minute)
	writeFiles(t, b, other...)
	l.must(a).wants(t, Summary{Seen: 3, Registered: 3, Bytes: 21, BytesRead: 21})
	l.await(3)
	got := l.must(b)
	got.wants(t, Summary{Seen: 3, Unchanged: 1, Touched: 1, Registered: 1, Versions: 1, Bytes: 15, BytesRead: 22})
	if want := []string{of[0].name}; !slices.Equal(got.versions, want) {
		t.Errorf("new versions %q, want %q", got.versions, want)
	}
	l.compareLedger(l.await(4))
	l.compareBodies(namedKey, of...)
	l.compareBodies(func(f frame) string { return wire.NamedKey(site, instrument, f.name, 2) }, other[0])
	l.must(a).wants(t, Summary{Seen: 3, Unchanged: 3})
	// Only the file of the second tree that has another time is read again.
	l.must(b).wants(t, Summary{Seen: 3, Unchanged: 2, Touched: 1, BytesRead: 7})
}

// TestChangingFile: a file that is written to while it is read is not taken.
func TestChangingFile(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	of := frames(2)
	of[0].body = strings.Repeat("0123456789abcdef", 4<<20)
	writeFiles(t, dir, of...)
	file, err := os.OpenFile(filepath.Join(dir, of[0].name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, _ = file.WriteString("more")
			}
		}
	}()
	got, err := l.run(dir, "--settle", "0s")
	close(stop)
	<-stopped
	if err == nil || got.reasons[of[0].name] != Changing || got.Registered != 1 {
		t.Errorf("%v, %v", got.reasons, err)
	}
	for key := range l.await(1) {
		if key != namedKey(of[1]) {
			t.Errorf("%s is listed", key)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	l.must(dir, "--settle", "0s")
	l.compareLedger(l.await(2))
}

// TestWhatMakesNoSense: a slip of the pen imports nothing.
func TestWhatMakesNoSense(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	writeFiles(t, dir, frames(1)...)
	file := filepath.Join(dir, frames(1)[0].name)
	for says, args := range map[string][]string{
		"there is no field {jahr}":          {dir, "--name-template", "{jahr}"},
		`no Instrument "allsky-2"`:          {dir, "--instrument", "allsky-2"},
		"not a name of an Instrument":       {dir, "--instrument", "All Sky"},
		"there is no folder":                {filepath.Join(dir, "nowhere")},
		"is not a folder":                   {file},
		"add --in-place":                    {"archive/tree"},
		"only where it serves them":         {dir, "--in-place"},
		"not in the Site's bucket":          {"other/tree", "--in-place"},
		"belong to Substorm itself":         {"archive/o/thule", "--in-place"},
		"no such file":                      {dir, "--checksums", filepath.Join(dir, "nowhere")},
		"line 1: a line is neither":         {dir, "--checksums", file},
		"goes with --checksums":             {dir, "--trust-checksums"},
		"1 to 1024":                         {dir, "--parallel", "0"},
		"1 could not be placed: the report": {dir, "--name-template", "{year}.fits"},
	} {
		if _, err := l.run(args[0], args[1:]...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q", args, err, says)
		}
	}
	if got := l.listed(); len(got) > 0 {
		t.Errorf("listed: %v", got)
	}
}

// TestFileAndFolder: a name is an object's or a folder's, whichever import brought it.
func TestFileAndFolder(t *testing.T) {
	l, a, b := newLab(t), t.TempDir(), t.TempDir()
	at := time.Date(2015, 3, 17, 6, 30, 0, 0, time.UTC)
	writeFiles(t, a, frame{"2015/file", "a file", at}, frame{"2015/folder/x", "in a folder", at})
	writeFiles(t, b, frame{"2015/file/x", "in a file", at}, frame{"2015/folder", "a folder", at}, frame{"2015/free", "free", at})
	l.must(a, "--name-template", "{name}").wants(t, Summary{Seen: 2, Registered: 2, Bytes: 17, BytesRead: 17})
	l.await(2)
	for _, flags := range [][]string{{"--dry-run"}, nil} {
		got, err := l.run(b, append(flags, "--name-template", "{name}")...)
		if err == nil {
			t.Errorf("%q: a tree that clashes is imported", flags)
		}
		if diff := cmp.Diff(map[string]Reason{"2015/file/x": NameConflict, "2015/folder": NameConflict}, got.reasons); diff != "" || got.Registered != 1 {
			t.Errorf("%q: %d registered, and (-want +got)\n%s", flags, got.Registered, diff)
		}
	}
	// The objects that a gateway received are not listed yet.
	kv, err := l.js.KeyValue(t.Context(), wire.NamesBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	gateway := &nameclaims.Folders{}
	if err := gateway.Claim(t.Context(), kv, instrument, "new/x", false); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Claim(t.Context(), kv, instrument, "2015/folder/y", false); err != nil {
		t.Errorf("a folder that was imported: %v", err)
	}
	c := t.TempDir()
	writeFiles(t, c, frame{"new", "a folder at the gateway", at})
	if got, err := l.run(c, "--name-template", "{name}"); err == nil || got.reasons["new"] != NameConflict {
		t.Errorf("%v: %v", got.reasons, err)
	}
}
