// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// lieOutcome is what a run does that a server lies to.
type lieOutcome struct {
	// says is a part of its error; empty: it succeeds.
	says string
	// comes: the new object is in the folder. Stands: it does not come later either, until a run ignores retractions. Unlisted are how
	// many objects it reports as not listed any more.
	comes    bool
	stands   bool
	unlisted int64
}

var (
	notWhole    = lieOutcome{says: "the answer is not whole"}
	failedAlone = lieOutcome{says: pull.ErrLeft.Error()}
)

var lieOutcomes = map[liar.Mode]lieOutcome{
	liar.Portal:         {says: "a page of HTML"},
	liar.BarePortal:     {says: "is not the mirror index of a Substorm"},
	liar.Redirect:       {says: "the server redirects"},
	liar.Cut:            notWhole,
	liar.OtherBytes:     failedAlone,
	liar.PageForObjects: notWhole,
	liar.EndsEarly:      notWhole,
	liar.NoEnd:          notWhole,
	liar.WrongDigest:    failedAlone,
	liar.OtherObject:    {says: pull.ErrLeft.Error(), comes: true, unlisted: 1},
	liar.ShrinkingDay:   {comes: true, unlisted: 1},
	liar.EmptyDay:       {unlisted: 3},
	liar.NoDays:         {unlisted: 3},
	liar.NoInstruments:  {says: "no longer lists 1 of 1 Instruments of this mirror (allsky-1)"},
	liar.Absent:         {},
	liar.OtherSite:      {says: "is a mirror of site thule, not of elsewhere"},
	liar.OtherSiteIDs:   {says: pull.ErrLeft.Error(), comes: true, unlisted: 3},
	liar.DuplicateID:    {says: pull.ErrLeft.Error(), comes: true},
	liar.DuplicatePath:  {says: pull.ErrLeft.Error(), comes: true},
	liar.Gigantic:       {says: "has 6000000000000000 bytes"},
	liar.Huge:           failedAlone,
	liar.Negative:       {says: "has -1 bytes"},
	liar.Outside:        failedAlone,
	liar.Absolute:       failedAlone,
	liar.Dotted:         failedAlone,
	liar.AllPurged:      {says: "nothing is removed", stands: true},
	liar.YearAhead:      {says: "is off by 87", comes: true},
	liar.YearBehind:     {says: "is off by -87", comes: true},
	liar.NoTime:         {says: "does not state the current time"},
	liar.OldCopy:        {says: "an old copy of its index", comes: true},
}

// However a server lies, the folder has no bytes but those that were listed with their digest, nothing of it goes, nothing is written beside
// it, and the run says what is wrong. Once the server is honest, the next run brings all, but for what it said was purged.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Policy.SafetyStop, l.tries = 10, 2
	index := liar.BeforeIndex(t, l.URL)
	index.Held, index.New = "held.txt", "new.fits"
	put := func(path, body string, observed time.Time) {
		l.Wait(l.Put(archivetest.Camera, path, body, func(r *wire.Record) { r.ReceivedAt, r.ObservedFrom, r.ObservedTo = storm, &observed, &observed }))
	}
	held := map[string]string{}
	for _, path := range []string{index.Held, "1.txt", "2.txt"} {
		put(path, path, storm)
		held["allsky-1/"+path] = path
	}
	large := strings.Repeat("0123456789abcdef", (folder.PartSize+1<<20)/16)
	put(index.New, large, storm.Add(time.Hour))
	all := maps.Clone(held)
	all["allsky-1/"+index.New] = large
	for _, mode := range liar.IndexModes {
		want, known := lieOutcomes[mode]
		if !known {
			t.Errorf("%s: no outcome is known", mode)
			continue
		}
		parent := t.TempDir()
		l.dir = filepath.Join(parent, "mirror")
		l.Selection.ObservedTo = storm.Add(time.Minute) // else the new one comes now
		if err := l.from(t.Context(), index.URL); err != nil {
			t.Fatalf("before %s: %v", mode, err)
		}
		l.Selection.ObservedTo = time.Time{}
		l.want("before "+string(mode), held)

		index.Set(mode)
		err := l.from(t.Context(), index.URL)
		if (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) || l.last.Unlisted != want.unlisted {
			t.Errorf("%s: %+v: %v", mode, l.last, err)
		}
		if want.comes {
			l.want(string(mode), all)
		} else {
			l.want(string(mode), held)
		}
		if others, err := os.ReadDir(parent); err != nil || len(others) != 1 {
			t.Errorf("%s: beside the folder there is %v, %v", mode, others, err)
		}

		index.Set("")
		if want.stands {
			if err := l.from(t.Context(), index.URL); err != nil {
				t.Errorf("after %s: %v", mode, err)
			}
			l.want("after "+string(mode), held)
			l.Retractions = plan.RetractionsIgnore
		}
		if err := l.from(t.Context(), index.URL); err != nil {
			t.Errorf("after %s: %v", mode, err)
		}
		l.Retractions = ""
		l.want("after "+string(mode), all)
		if err := os.RemoveAll(parent); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}
