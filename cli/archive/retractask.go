// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// decisionLook is between looks for the next decision, goneLook between those
	// whether purged bytes are gone.
	decisionLook = 250 * time.Millisecond
	goneLook     = 2 * time.Second
	// shownRefusals are printed one by one; all are counted.
	shownRefusals = 20
)

// errRefused: the archivist refused some of what was requested.
var errRefused = errors.New("refused by the archivist")

// asked is what was requested: the objects by ID, the run that names the requests, and
// the sequence behind which their decisions lie in the stream of notices.
type asked struct {
	run     string
	after   uint64
	objects map[string]wire.Record
	total   string
}

// ask publishes one request for each object. The archivist decides.
func (r *request) ask(ctx context.Context, targets []wire.Record) (*asked, error) {
	a := &asked{run: nuid.Next(), objects: make(map[string]wire.Record, len(targets)), total: sum(targets)}
	for _, t := range targets {
		q := wire.ArchiveRequest{Site: r.site, Instrument: r.instrument, Run: a.run, Action: r.verb.action, ID: t.ID,
			ReceivedAt: t.ReceivedAt, Reason: r.reason, By: r.by}
		m, err := stream.RequestMessage(q, wire.CommandWriter)
		if err != nil {
			return nil, err
		}
		ack, err := r.js.PublishMsg(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("request to %s %s (%d of %d objects were requested before): %w", r.verb.name, t.ID, len(a.objects), len(targets), err)
		}
		a.after = cmp.Or(a.after, ack.Sequence)
		a.objects[t.ID] = t
		r.choice.shown.Set(int64(len(a.objects)), int64(len(targets)), "%d of %d objects requested", len(a.objects), len(targets))
	}
	return a, nil
}

// await waits for the decisions, and then until purged bytes are gone.
func (r *request) await(ctx context.Context, a *asked) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	done, refused, err := r.decisions(ctx, a)
	if err != nil {
		return err
	}
	if r.verb == purge && len(done) > 0 {
		if err := r.awaitGone(ctx, done); err != nil {
			return err
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d objects of instrument %s are not %s: %w", refused, len(a.objects), r.instrument, r.verb.done, errRefused)
	}
	fmt.Fprintf(r.notes, "%s of instrument %s %s\n", a.total, r.instrument, r.verb.done)
	return nil
}

// decisions reads what the archivist decided about each of the objects, and prints what
// it refused. It returns those that were done.
func (r *request) decisions(ctx context.Context, a *asked) (done map[string]wire.Record, refused int, err error) {
	notices, err := r.js.Stream(ctx, wire.NoticeStream(r.site))
	if err != nil {
		return nil, 0, fmt.Errorf("stream %s: %w", wire.NoticeStream(r.site), err)
	}
	subject := wire.DecisionSubject(r.site, r.instrument, a.run)
	done = map[string]wire.Record{}
	decided := map[string]bool{}
	after := a.after
	for len(decided) < len(a.objects) {
		r.choice.shown.Set(int64(len(decided)), int64(len(a.objects)), "%d of %d requests decided", len(decided), len(a.objects))
		m, err := notices.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(subject))
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil, 0, fmt.Errorf("decisions of the archivist in stream %s: %w", wire.NoticeStream(r.site), err)
			}
			if !retry.Sleep(ctx, decisionLook) {
				return nil, 0, r.undecided(len(decided), len(a.objects))
			}
			continue
		}
		after = m.Sequence
		d, err := wire.Decode[wire.ArchiveDecision](m.Data)
		if err != nil {
			return nil, 0, fmt.Errorf("decision %d on %s: %w", m.Sequence, subject, err)
		}
		object, ours := a.objects[d.ID]
		if !ours || decided[d.ID] { // the same once more
			continue
		}
		decided[d.ID] = true
		if d.Result == wire.DecisionDone {
			done[d.ID] = object
			continue
		}
		if refused++; refused <= shownRefusals {
			fmt.Fprintf(r.notes, "%s is not %s: %s: %s\n", object.Published(), r.verb.done, d.Reason, d.Message)
		}
	}
	if more := refused - shownRefusals; more > 0 {
		fmt.Fprintf(r.notes, "… and %d more are refused\n", more)
	}
	return done, refused, nil
}

func (r *request) undecided(decided, all int) error {
	return fmt.Errorf("%d of %d requests are not decided after %s: they stay in stream %s, and the archivist decides when it runs. "+
		"substorm status says whether one does; substorm archive ls shows what became of the objects", all-decided, all, r.patience, wire.NoticeStream(r.site))
}

// awaitGone waits until the bytes of purged objects are gone.
func (r *request) awaitGone(ctx context.Context, left map[string]wire.Record) error {
	count := len(left)
	for {
		if err := r.removeGone(ctx, left); err != nil && ctx.Err() == nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		r.choice.shown.Set(int64(count-len(left)), int64(count), "the bytes of %d of %d objects are gone", count-len(left), count)
		if !retry.Sleep(ctx, goneLook) {
			return fmt.Errorf("%d of %d objects are listed as purged, and their bytes are not gone after %s: the archivist goes on. "+
				"The metric substorm_archive_removals_waiting and the log of the archivist say why a removal waits",
				len(left), count, r.patience)
		}
	}
}

// removeGone takes from what is left what is gone: from where it lay when that was requested,
// and from where a compaction may have moved it since.
func (r *request) removeGone(ctx context.Context, left map[string]wire.Record) error {
	days := map[wire.Day]bool{}
	for _, t := range left {
		days[wire.DayOf(t.ReceivedAt)] = true
	}
	for day := range days {
		for rec, err := range manifest.Records(ctx, r.store, r.site, r.instrument, day) {
			if err != nil {
				return err
			}
			requested, pending := left[rec.ID]
			if !pending || rec.State != wire.StatePurged && rec.State != wire.StateDuplicate {
				continue
			}
			gone, err := r.gone(ctx, requested.Key, rec.Key)
			if err != nil {
				return err
			}
			if gone {
				delete(left, rec.ID)
			}
		}
	}
	return nil
}

func (r *request) gone(ctx context.Context, keys ...string) (bool, error) {
	for _, key := range keys {
		_, err := r.store.Head(ctx, key)
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, objectstore.ErrNotFound) {
			return false, err
		}
	}
	return true, nil
}
