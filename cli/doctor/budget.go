// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/cli/up"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/highwater"
)

// budget compares what the data folder has with what it may have.
func (f folder) budget(ctx context.Context, declared string) Check {
	const check = "disk budget"
	var sizes diskbudget.Sizes
	var usage diskbudget.Usage
	var err error
	if sizes.Declared, err = up.DiskBudget(declared); err == nil {
		sizes.Free, sizes.Size, err = diskbudget.Space(f.at)
	}
	if err == nil && f.owner >= 0 { // else the folder is not there
		usage, err = diskbudget.Measure(ctx, f.path)
	}
	if err != nil {
		return warning(check, "run substorm doctor as the user of the Site, or as root", "%v", err)
	}
	sizes.Used = usage.Total()
	bytes := func(n int64) string { return humanize.IBytes(uint64(n)) }
	found := fmt.Sprintf("%s of %s are used: objects %s, streams %s, spool %s", bytes(sizes.Used), bytes(sizes.Budget()), bytes(usage.Objects), bytes(usage.Streams), bytes(usage.Spool))
	if sizes.Declared > sizes.Budget() {
		found += fmt.Sprintf("; %s are declared, which the disk does not have beside a reserve of %s", bytes(sizes.Declared), bytes(diskbudget.Reserve(sizes.Size)))
	}
	const todo = "raise --disk-budget, move the data folder to a larger disk, or have less kept (spec.archive.expiry of Instruments)"
	switch d := diskbudget.Plan(sizes, diskbudget.Decision{}); {
	case d.NoReceipts:
		return failed(check, todo, "%s: nothing is received", found)
	case sizes.NearlyFull():
		return warning(check, todo, "%s: what can be made again, or partners have, expires soon where Instruments say so, then archived messages go, and in the end nothing is received", found)
	}
	return fine(check, "%s", found)
}

// maxAhead is how far the clock may be ahead of the time that a data folder has seen: some minutes, while the computer starts.
const maxAhead = 10 * time.Minute

// expiryClock compares the clock with the time by which data expires.
func expiryClock(dir string, now time.Time) Check {
	const check = "expiry clock"
	mark, found, err := highwater.Read(dir)
	switch {
	case err != nil:
		return failed(check, "until then nothing runs here", "%v", err)
	case !found:
		return fine(check, "no Site has run here yet")
	case now.Sub(mark) > maxAhead:
		return warning(check, "see that the clock is right; then nothing is to be done: the time follows while the Site runs, at twice the speed of the clock",
			"the clock is %s ahead of the time that the data folder has seen, and nothing expires by age before that has passed", now.Sub(mark).Round(time.Minute))
	}
	return fine(check, "the data folder has seen %s", mark.UTC().Format(time.RFC3339))
}
