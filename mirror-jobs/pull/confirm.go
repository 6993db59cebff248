// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// confirming is what a run knows of a Site that waits for this mirror before anything expires there.
type confirming struct {
	// awaited: the other side does.
	awaited bool
	// sweeps: it did not when earlier runs looked at its days, or they could not confirm them. This one looks at all of them.
	sweeps bool
	// isNew: no run with this folder has confirmed anything to it. The copies that an earlier folder confirmed with the same token are not here.
	isNew bool
}

// noteAwaited notes whether the other side waits for this mirror.
func (p *run) noteAwaited(root mirrorindex.Root, unchanged bool) {
	state := p.Folder.State()
	before := state.Confirms && (unchanged || root.Ledger == state.Ledger)
	p.awaited = root.Confirms || unchanged && before
	p.sweeps = p.awaited && !before
	p.isNew = p.awaited && state.Ledger == ""
	if !unchanged && !p.isNew {
		p.Folder.SetLedger(root.Ledger)
	}
	p.Folder.SetConfirms(p.awaited && !p.sweeps) // until the run has looked at all days
}

// confirmNothing says to the other side, before anything is fetched, that it cannot rely on what was confirmed before.
func (p *run) confirmNothing(ctx context.Context, root mirrorindex.Root) {
	var names []string
	for _, line := range root.Instruments {
		if p.Wants == nil || p.Wants(line.Instrument) {
			names = append(names, line.Instrument)
		}
	}
	if p.sent(ctx, p.Source.ConfirmNothing(ctx, names)) { // else the next run says it
		p.Folder.SetLedger(root.Ledger)
	}
}

// confirmDays says to the other side what is here of some days whose lists are written.
func (p *run) confirmDays(ctx context.Context, days []*day) (failed bool) {
	var lines []mirrorindex.ConfirmLine
	for _, d := range days {
		line := mirrorindex.ConfirmLine{Instrument: d.in.Instrument, Day: d.day}
		if d.whole() {
			have := plan.Confirmed(d.lines)
			line.Have = &have
		} else if d.failed == 0 { // the next run looks again
			continue
		}
		lines = append(lines, line)
	}
	for some := range slices.Chunk(lines, mirrorindex.MaxConfirmed) {
		if p.awaited && !p.send(ctx, some) && p.awaited {
			failed = true
		}
	}
	return failed
}

// send posts lines, and says whether the other side took them.
func (p *run) send(ctx context.Context, lines []mirrorindex.ConfirmLine) bool {
	_, err := p.Source.Confirm(ctx, lines)
	return p.sent(ctx, err)
}

// sent says whether the other side took what was posted. Otherwise the log says why, and the run continues.
func (p *run) sent(ctx context.Context, err error) bool {
	var refused *https.RefusedError
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil: // the run was stopped
	case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusTooManyRequests:
		p.awaited = false
		p.Folder.SetConfirms(false)
		p.Logger.Warn("the other side does not accept the confirmations of this mirror, and may let objects expire that were not pulled", "error", err)
	default:
		p.Logger.Warn("cannot confirm the copies here to the other side: the next run tries again", "error", err)
	}
	return false
}

// endRun notes when all was compared, and says to the other side how the run ended, if it lets this mirror read anything that is selected.
func (p *run) endRun(ctx context.Context, begun time.Time, left int64, confirms bool) error {
	switch {
	case p.compares && left == 0 && confirms:
		p.Folder.SetCompared(begun.UTC())
	case p.compares && left > 0: // what was lost did not come back
		p.Folder.SetCompared(time.Time{})
	}
	if !p.awaited || !confirms {
		return nil
	}
	end := mirrorindex.ConfirmRun{Owed: wire.MirrorOwed{Objects: left}}
	if p.Prune != plan.PruneWhenExpired { // else it removes what expires there, and nothing may expire since it is here
		end.ComparedAt = p.Folder.State().ComparedAt
	}
	if left == 0 {
		end.VerifiedTo = begun.UTC()
	}
	if !p.send(ctx, []mirrorindex.ConfirmLine{{Run: &end}}) {
		return ctx.Err()
	}
	return nil
}
