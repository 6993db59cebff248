// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// report tells the operator how far a run is.
type report struct {
	p           *program
	kv          jetstream.KeyValue
	incarnation string

	mu       sync.Mutex // of what follows
	name     string
	key      string
	status   wire.MirrorStatus
	progress *push.Progress
	// path measures the way to the other side; nil if it is not measured.
	path func() (wire.MirrorPathSeen, bool)
	// verifies: the run compares what it moves with the other side.
	verifies bool
	// rates are what was moved when, for the rate of the last minute.
	rates []plan.Sample
}

func newReport(ctx context.Context, p *program) (*report, error) {
	kv, err := p.js.KeyValue(ctx, wire.StatusBucket(p.cfg.Site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.StatusBucket(p.cfg.Site), err)
	}
	r := &report{p: p, kv: kv, incarnation: rand.Text()}
	r.setRun(p.cfg.Run)
	return r, nil
}

// setRun has what follows be about a run of a name: a program that begins runs itself names them.
func (r *report) setRun(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name, r.key = run, wire.MirrorStatusKey(r.p.cfg.Partner, run)
}

// begin starts a report about a run.
func (r *report) begin(entry wire.MirrorEntry, progress *push.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := &r.p.cfg
	reached, unreached := r.status.Reached, r.status.Unreached
	r.status = wire.MirrorStatus{
		Run: r.name, Pod: cfg.Pod, Generation: entry.Generation, Trigger: trigger(cfg.Trigger), VerifyOnly: cfg.VerifyOnly,
		Part: !cfg.From.IsZero() || !cfg.To.IsZero(), StartedAt: time.Now().UTC(), Result: wire.MirrorRunning, Reached: reached, Unreached: unreached,
	}
	r.progress, r.rates, r.path = progress, nil, nil
	r.verifies = entry.Direction == wire.MirrorPull || entry.Verify != wire.MirrorVerifyNone
}

// measures says what measures the way to the other side.
func (r *report) measures(path func() (wire.MirrorPathSeen, bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path = path
}

// trigger is the Trigger of a run of a kind: a timetable begins scheduled runs.
func trigger(of string) string {
	if of == wire.MirrorTimetable {
		return wire.MirrorScheduled
	}
	return of
}

// reportWait reports at once what the run waits for; empty: for nothing. A wait may be over before the next report is due.
func (r *report) reportWait(ctx context.Context, reason, message string) {
	r.mu.Lock()
	same := r.status.Reason == reason && r.status.Message == message
	r.status.Reason, r.status.Message = reason, message
	r.mu.Unlock()
	if !same {
		r.writeReport(ctx)
	}
}

// run reports until ctx ends.
func (r *report) run(ctx context.Context) {
	tick := time.NewTicker(wire.MirrorReportInterval)
	defer tick.Stop()
	for {
		r.writeReport(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// end reports how a run ended.
func (r *report) end(ctx context.Context, err error) {
	r.ended(ctx, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r.writeReport(ctx)
}

func (r *report) ended(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UTC()
	r.status.EndedAt, r.status.Result, r.status.Reason, r.status.Message = now, wire.MirrorSucceeded, "", ""
	var problem *push.Problem
	if err == nil || errors.Is(err, push.ErrOwed) {
		r.progress.Listed()
	}
	switch {
	case err == nil:
		if !r.status.Part && r.verifies {
			r.status.VerifiedTo = r.status.StartedAt
		}
	case ctx.Err() != nil:
		r.status.Result, r.status.Message = wire.MirrorStopped, "the run was stopped: the next run continues"
	default:
		_ = errors.As(err, &problem)
		r.status.Result, r.status.Reason, r.status.Message = wire.MirrorFailed, reasonOf(err), errorText(err)
	}
	r.reached(problem, now)
}

// reasonOf is the reason of a run that failed. Errors of the other side are a push.Problem: what is left is of this side.
func reasonOf(err error) string {
	if problem := (*push.Problem)(nil); errors.As(err, &problem) {
		return problem.Reason
	}
	for _, of := range storeErrors {
		if errors.Is(err, of) {
			return wire.MirrorReasonStore
		}
	}
	return wire.MirrorReasonLocal
}

// storeErrors are those of the Site's own object store, and of what it holds.
var storeErrors = []error{objectstore.ErrUnavailable, objectstore.ErrAccessDenied, objectstore.ErrNotFound, objectstore.ErrNoBucket, objectstore.ErrDigest,
	objectstore.ErrRange, objectstore.ErrExists, objectstore.ErrNoS3, wire.ErrMalformed, wire.ErrNewerFormat}

// reached notes whether the other side answered; of a run that had nothing to ask nothing is said.
func (r *report) reached(problem *push.Problem, now time.Time) {
	switch {
	case unreached(problem) && !problem.Answered:
		since := now
		if was := r.status.Unreached; was != nil && was.Reason == problem.Reason {
			since = was.Since
		}
		r.status.Unreached = &wire.MirrorProblem{Reason: problem.Reason, Message: errorText(problem), Since: since}
	case r.progress.Answered() || problem != nil && problem.Answered:
		r.status.Reached, r.status.Unreached = now, nil
	}
}

// errorText is an error as a report says it, in one line: the other side may have said a part of it.
func errorText(err error) string {
	return wire.SaidText(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// unreached says whether a problem means that the partner does not answer, or does not let us
// in.
func unreached(p *push.Problem) bool {
	if p == nil {
		return false
	}
	switch p.Reason {
	case wire.MirrorReasonUnreachable, wire.MirrorReasonAccessDenied, wire.MirrorReasonHostKeyMismatch, wire.MirrorReasonCertificate:
		return true
	}
	return false
}

// writeReport writes the report.
func (r *report) writeReport(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UTC()
	s := &r.status
	s.ReportedAt, s.Progress, s.Purges = now, r.progress.Report(), r.progress.Unconfirmed()
	r.rates = plan.Recent(append(r.rates, plan.Sample{At: now, Bytes: s.Progress.Bytes}))
	s.Progress.BytesPerSecond = plan.BytesPerSecond(r.rates)
	s.Owed, s.WentBack, s.OriginClock = r.progress.Owed(), r.progress.WentBack(), wire.SaidText(r.progress.OriginClock())
	s.Unawaited = r.progress.Unawaited()
	if s.EndedAt.IsZero() {
		s.Progress.Ends = plan.Ends(now, s.Progress.TotalBytes-s.Progress.Bytes, s.Progress.BytesPerSecond)
	}
	if r.path != nil {
		if seen, known := r.path(); known {
			s.Path = &seen
		}
	}
	data, err := wire.Encode(*s)
	if err == nil {
		_, err = r.kv.Put(ctx, r.key, data)
	}
	if err != nil && ctx.Err() == nil {
		r.p.log.Warn("cannot report the state of the run", "error", err)
	}
}
