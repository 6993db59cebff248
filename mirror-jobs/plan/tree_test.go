// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

func TestInstrumentOf(t *testing.T) {
	paths := []wire.MirrorPath{{Pattern: "kev/**/*.jpg", Instrument: "kev"}, {Pattern: "mag[1]/*.txt", Instrument: "brackets"}, {Pattern: "**/*.tx?", Instrument: "mag"}, {Pattern: `a{b,c}\d`, Instrument: "literal"}}
	for path, want := range map[string]string{
		"kev/x.jpg": "kev", "kev/2015/03/x.jpg": "kev", "kev/x.png": "", "other/kev/x.jpg": "", "keva/x.jpg": "",
		"mag[1]/x.txt": "brackets", "mag1/x.txt": "mag", "x.txt": "mag", "a/b/c.txt": "mag", "a/b/c.txts": "", "a.tx/b": "",
		`a{b,c}\d`: "literal", "abd": "", "": "",
	} {
		if got, is := plan.InstrumentOf(path, paths); got != want || is != (want != "") {
			t.Errorf("%q belongs to %q, %v; want %q", path, got, is, want)
		}
	}
}

func TestTree(t *testing.T) {
	files := []plan.File{{Path: "kev/new.jpg", Mark: "1"}, {Path: "kev/same.jpg", Mark: "2"}, {Path: "kev/changed.jpg", Mark: "3"}, {Path: "kev/untold.jpg"}, {Path: "readme", Mark: "5"}, {Path: "kev/moved.jpg", Mark: "7"}}
	fetched := map[string]plan.Fetched{"kev/moved.jpg": {Mark: "7", Instrument: "kevo"}}
	for path, mark := range map[string]string{"kev/same.jpg": "2", "kev/changed.jpg": "other", "kev/untold.jpg": "", "kev/gone.jpg": "6", "readme": "5"} {
		fetched[path] = plan.Fetched{Mark: mark, Instrument: "kev"}
	}
	got := plan.Tree(files, fetched, []wire.MirrorPath{{Pattern: "kev/*", Instrument: "kev"}})
	want := plan.TreeFolder{Fetch: []int{0, 2, 3, 5}, Instruments: []string{"kev", "kev", "kev", "kev"}, Same: 1, Quarantined: []int{4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +planned):\n%s", diff)
	}
}
