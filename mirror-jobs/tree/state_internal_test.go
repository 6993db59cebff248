// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
)

// reopened is what a later run finds of a folder.
func reopened(t *testing.T, s *state, path string) *fetched {
	t.Helper()
	f, err := s.folder(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The files that were fetched of a folder are remembered, however many files it has, and however often they change.
func TestFolderOfManyFiles(t *testing.T) {
	t.Parallel()
	s, err := openState(t.Context(), archivetest.New(t).JetStream, archivetest.Site, "uni")
	if err != nil {
		t.Fatal(err)
	}
	const folder, files = "2026/æ b", 37_655
	want := map[string]Seen{}
	f := reopened(t, s, folder)
	set := func(i int, seen Seen) {
		path := fmt.Sprintf("%s/station-allsky-%06d.fits", folder, i)
		want[path] = seen
		f.set(path, seen)
	}
	same := func(what string) {
		t.Helper()
		if err := f.save(t.Context()); err != nil {
			t.Fatal(err)
		}
		f = reopened(t, s, folder)
		if diff := cmp.Diff(want, f.seen); diff != "" {
			t.Errorf("%s, in %d parts: of %d files %d are known; (-want +got):\n%.1000s", what, len(f.parts), len(want), len(f.seen), diff)
		}
	}
	for i := range files {
		set(i, Seen{Mark: "2026-11-26 10:00 1.2M", ETag: `"65f1a2b3-12d687"`, Modified: "Thu, 26 Nov 2026 10:00:00 GMT", Instrument: "camera"})
		if i == files/2 {
			same("the first half")
		}
	}
	same("all")
	parts := len(f.parts)
	for i := 0; i < files; i += 3 { // they take more space than before
		set(i, Seen{Mark: "2026-11-27 10:00 1.3M", ETag: `W/"` + strings.Repeat("x", 300) + `"`, Instrument: "camera"})
	}
	same("a third changed")
	for i := range files {
		set(i, Seen{Mark: "2026-11-28", Instrument: "camera"})
	}
	same("all changed")
	if parts < 10 || len(f.parts) > 4*parts {
		t.Errorf("there were %d parts, and there are %d", parts, len(f.parts))
	}
	other := reopened(t, s, "2026")
	other.set("2026/1.txt", Seen{Mark: "1"})
	other.set("2026/2.txt", Seen{ETag: strings.Repeat("y", 2<<20)})
	if err := other.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]Seen{"2026/1.txt": {Mark: "1"}}, reopened(t, s, "2026").seen); diff != "" {
		t.Errorf("beside one that no value holds (-want +got):\n%.1000s", diff)
	}
	same("at the end")
}

// Files are written that came, and not all of a large folder.
func TestFolderIsWrittenInParts(t *testing.T) {
	t.Parallel()
	s, err := openState(t.Context(), archivetest.New(t).JetStream, archivetest.Site, "uni")
	if err != nil {
		t.Fatal(err)
	}
	f := reopened(t, s, "")
	for i := range 20_000 {
		f.set(fmt.Sprintf("%06d.fits", i), Seen{Mark: "2026-11-26 10:00 1.2M", Modified: "Thu, 26 Nov 2026 10:00:00 GMT"})
	}
	if err := f.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = reopened(t, s, "")
	if len(f.changed) > 0 {
		t.Errorf("nothing changed, and %v are to be written", f.changed)
	}
	f.set("new.fits", Seen{Mark: "1"})
	if len(f.parts) < 3 || len(f.changed) != 1 {
		t.Errorf("of %d parts %v are to be written for one file", len(f.parts), f.changed)
	}
}
