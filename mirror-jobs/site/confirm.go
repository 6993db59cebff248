// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"net/http"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// confirming is what a run knows of a Site that waits for this one before anything expires there.
type confirming struct {
	// awaited: the other Site does.
	awaited bool
	// sweeps: it did not when earlier runs looked at its days, or they could not confirm them. This one looks at all of them.
	sweeps bool
	// isNew: no run has confirmed anything to it that is noted here. Copies that were confirmed before this Site was installed again may be lost.
	isNew bool
	// unsent: days could not be said to it.
	unsent bool
}

// noteAwaited notes whether the other Site waits for this one.
func (r *run) noteAwaited(root mirrorindex.Root, unchanged bool) {
	before := r.state.root.Confirms && (unchanged || root.Ledger == r.state.root.Ledger)
	r.awaited = root.Confirms || unchanged && before
	if r.isBounded() { // of each day it looks at a part
		r.awaited = false
		return
	}
	if !unchanged {
		if r.isNew = r.awaited && r.state.root.Ledger == "" && !r.part; !r.isNew {
			r.state.root.Ledger = root.Ledger
		}
		r.noteUnawaited(root)
	}
	r.Progress.SetUnawaited(r.state.root.Unawaited)
	r.sweeps = r.awaited && !before && !r.part
	r.state.root.Confirms = r.awaited && !r.sweeps // until the run has looked at all days: see swept
}

// confirmNothing says to the other Site, before anything is fetched, that it cannot rely on what was confirmed before. Errors: ctx's.
func (r *run) confirmNothing(ctx context.Context, root mirrorindex.Root) error {
	var names []string
	for _, line := range root.Instruments {
		if r.policy.Wants == nil || r.policy.Wants(line.Instrument) {
			names = append(names, line.Instrument)
		}
	}
	sent, err := r.sent(ctx, r.Source.ConfirmNothing(ctx, names))
	if sent { // else the next run says it
		r.state.root.Ledger = root.Ledger
	}
	return err
}

// noteUnawaited notes why the other Site does not wait for this one. A refusal by that Site stands until it has taken something.
func (r *run) noteUnawaited(root mirrorindex.Root) {
	h := r.Entry.HTTPS
	shown := h.Token || h.TLS != nil && h.TLS.Certificate
	switch was := r.state.root.Unawaited; {
	case !root.Confirms:
		r.Logger.Info("the other Site does not wait for this one before it lets data expire: it can, with spec.pulledBy of its Site and a reader's token here")
		r.state.root.Unawaited = &wire.MirrorUnawaited{Reader: root.Reader, Old: shown && root.Reader == ""}
	case was != nil && was.Refused == "":
		r.state.root.Unawaited = nil
	}
}

// unawaited notes whether the other Site took what was confirmed; nil: it did.
func (r *run) unawaited(why *wire.MirrorUnawaited) {
	r.state.root.Unawaited = why
	r.Progress.SetUnawaited(why)
}

// noteSwept notes that the run has said to the other Site what is here of all days: one that ends before, or could not say it, is made again.
func (r *run) noteSwept() {
	if r.sweeps {
		r.state.root.Confirms = r.awaited && !r.unsent
	}
}

// confirmDays says to the other Site what is here of some days that the run has looked at.
func (r *run) confirmDays(ctx context.Context, days []*day) error {
	if !r.awaited {
		return nil
	}
	var lines []mirrorindex.ConfirmLine
	var of []*day
	for _, d := range days {
		line := mirrorindex.ConfirmLine{Instrument: d.in.name, Day: d.day}
		switch {
		case d.left+d.packed+d.missing > 0:
		case d.Withheld+d.asked+d.held+d.waits+d.Later+d.again > 0: // another run looks again
			continue
		case r.doubted && !r.looks: // lists do not say what is there
			continue
		default:
			policy := r.policyOf(d.in)
			have := policy.Confirmed(d.lines, d.partial, d.here)
			line.Have = &have
		}
		lines, of = append(lines, line), append(of, d)
	}
	if len(lines) == 0 {
		return nil
	}
	sent, err := r.send(ctx, lines)
	if err == nil && !sent && r.awaited {
		r.unsent = true
		for _, d := range of {
			d.again++ // its tag is not noted, and the next run looks again
		}
	}
	return err
}

// send posts lines, as sent says.
func (r *run) send(ctx context.Context, lines []mirrorindex.ConfirmLine) (sent bool, err error) {
	differ, err := r.Source.Confirm(ctx, lines)
	if differ > 0 {
		r.Logger.Info("the other Site lists other objects by now, or more than this mirror selects: it keeps waiting for these days", "days", differ)
	}
	return r.sent(ctx, err)
}

// sent says whether the other Site took what was posted. Otherwise the log says why, and the run continues. Errors: ctx's.
func (r *run) sent(ctx context.Context, err error) (bool, error) {
	var refused *https.RefusedError
	switch {
	case err == nil:
		r.unawaited(nil)
		return true, nil
	case ctx.Err() != nil:
		return false, err
	case errors.As(err, &refused) && refused.Status < 500 && refused.Status != 429:
		r.awaited, r.state.root.Confirms = false, false
		r.unawaited(&wire.MirrorUnawaited{Refused: wire.SaidText(err.Error()), Old: refused.Status == http.StatusNotFound})
		r.Logger.Warn("the other Site does not accept the confirmations of this mirror, and may let objects expire that were not pulled", "error", err)
	default:
		r.Logger.Warn("cannot confirm the copies here to the other Site: the next run tries again", "error", err)
	}
	return false, nil
}

// confirmRun says to the other Site how the run ended.
func (r *run) confirmRun(ctx context.Context) error {
	compared, err := r.compared(ctx)
	if err != nil || !r.awaited {
		return err
	}
	end := mirrorindex.ConfirmRun{ComparedAt: compared, Owed: wire.MirrorOwed{Objects: int64(r.owed)}}
	if r.left()+r.unrepairable+r.missing == 0 && r.stop == nil && r.vanished == nil && r.isCertain() {
		end.VerifiedTo = r.now.UTC()
	}
	if r.owed > 0 {
		end.Owed.Oldest = r.Progress.Oldest()
	}
	_, err = r.send(ctx, []mirrorindex.ConfirmLine{{Run: &end}})
	return err
}
