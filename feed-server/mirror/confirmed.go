// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// puller is the client's declaration as a reader that pulls; nil: the Site does not wait for the client. FeedConsumers and mirrors
// that are pushed to are other identities than the reader of their name.
func puller(v *endpoint.Request) *wire.ReaderEntry {
	name := v.Reader.String()
	e, declared := v.Snapshot.Readers[name]
	if !declared || e.Pulls == nil || !v.Reader.Is(access.SiteReader(name)) {
		return nil
	}
	return &e
}

// confirmed notes what a reader that pulls has.
func (x *Index) confirmed(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	reader := puller(v)
	switch media, _, _ := mime.ParseMediaType(v.Header.Get("Content-Type")); {
	case v.Reader.Anonymous():
		return problem.New(http.StatusUnauthorized, "what a mirror has is confirmed by a reader: show a token of one that spec.pulledBy of the Site names")
	case reader == nil:
		return problem.New(http.StatusForbidden, "the Site does not wait for the reader %s: name it in spec.pulledBy of the Site", v.Reader)
	case media != mirrorindex.MediaLines: // a browser asks first before it sends this to another origin with the certificate of its user
		return problem.New(http.StatusUnsupportedMediaType, "the body is JSON lines: set Content-Type to %s", mirrorindex.MediaLines)
	}
	said, p := endpoint.Questions[mirrorindex.ConfirmLine](v)
	if p == nil {
		p = endpoint.Distinct(said, func(q mirrorindex.ConfirmLine) string { return q.Instrument + ", " + string(q.Day) })
	}
	if p == nil {
		p = mayConfirm(v, said)
	}
	if p != nil {
		return p
	}
	x.answer(v, func(out *lines) error {
		ledger, err := x.cfg.JetStream.KeyValue(v.Context(), wire.LedgerBucket(x.cfg.Site))
		if err != nil {
			return fmt.Errorf("bucket %s: %w", wire.LedgerBucket(x.cfg.Site), err)
		}
		for _, line := range said {
			if err := x.confirm(v, out, ledger, reader, line); err != nil {
				return err
			}
		}
		return out.write(mirrorindex.ConfirmedLine{End: true})
	})
	return nil
}

// mayConfirm refuses all lines where one is about what the reader may not read, or cannot be so.
func mayConfirm(v *endpoint.Request, said []mirrorindex.ConfirmLine) *problem.Problem {
	for i, line := range said {
		n := i + 1
		if line.Run != nil {
			if line.Instrument != "" || line.Day != "" || line.Have != nil {
				return problem.New(http.StatusBadRequest, "line %d of the body is about a run and a day: write a line for each", n)
			}
			if r := line.Run; r.Owed.Objects < 0 || r.Owed.Bytes < 0 {
				return problem.New(http.StatusBadRequest, "line %d of the body says that fewer than no objects are owed", n)
			}
			continue
		}
		if _, err := line.Day.Start(); err != nil {
			return problem.New(http.StatusBadRequest, "line %d of the body names the day %.20q, which is none", n, line.Day)
		}
		if _, over := v.Offered(line.Instrument); over != nil {
			return problem.New(http.StatusForbidden, "line %d of the body is about instrument %.80q, which the reader %s may not read", n, line.Instrument, v.Reader)
		}
		if line.Have != nil && line.Have.Count < 0 {
			return problem.New(http.StatusBadRequest, "line %d of the body counts fewer than no objects", n)
		}
	}
	return nil
}

// confirm notes one line, and answers it.
func (x *Index) confirm(v *endpoint.Request, out *lines, ledger jetstream.KeyValue, reader *wire.ReaderEntry, line mirrorindex.ConfirmLine) error {
	if line.Run != nil {
		return x.report(v.Context(), reader.Reader, line.Run, v.Now)
	}
	answer := mirrorindex.ConfirmedLine{Instrument: line.Instrument, Day: line.Day}
	if answer.Unawaited = !reader.PullsOf(line.Instrument); answer.Unawaited {
		return out.write(answer) // it may pull more than what is waited for
	}
	day, err := x.cfg.Catalog.Day(v.Context(), line.Instrument, line.Day)
	if err != nil {
		return err
	}
	if len(day.Records) == 0 { // its column would open a day of the ledger that nothing ever closes
		return out.write(answer)
	}
	var has wire.Totals
	if has, answer.Confirmed = x.has(v, day, line); answer.Confirmed && has.Objects+has.Datagrams == 0 && expired(day) {
		return out.write(answer) // what it had confirmed before the day expired here stands: it may be all that is left
	}
	key := wire.LedgerKey(line.Instrument, line.Day, wire.StepPulled, reader.Reader)
	if err := stream.Save(v.Context(), ledger, key, wire.Mirrored(has)); err != nil {
		return err
	}
	return out.write(answer)
}

// has returns what a mirror has of a day, counted as runs that push count it: all that is current, that it may read and that was received
// up to the last of its own, if the sums are the same. Otherwise it lacks something unknown, and nothing counts.
func (x *Index) has(v *endpoint.Request, day *catalog.Day, line mirrorindex.ConfirmLine) (has wire.Totals, all bool) {
	in, over := v.Offered(line.Instrument)
	if over != nil || line.Have == nil {
		return has, false
	}
	var sum mirrorindex.Sum
	for i, r := range day.Records {
		if r.State != wire.StateCurrent || r.ReceivedAt.After(line.Have.Last) || !v.Sees(in, r.ObservedEnd()) {
			continue
		}
		e := mirrorindex.EntryOf(day.Path(i), r)
		sum.Add(&e)
		has.AddCopy(r)
	}
	if !sum.Same(*line.Have) {
		return wire.Totals{}, false
	}
	return has, true
}

// expired reports whether a day has expired: some of it has, and nothing is current.
func expired(day *catalog.Day) (is bool) {
	for _, r := range day.Records {
		if r.State == wire.StateCurrent {
			return false
		}
		is = is || r.Expired()
	}
	return is
}

// maxSkew is how far the clock of a mirror may be ahead before it is logged.
const maxSkew = time.Minute

// report notes how a run of a mirror ended. A mirror whose clock is ahead reports a time in the future: it has the objects up to now, and
// no more.
func (x *Index) report(ctx context.Context, reader string, run *mirrorindex.ConfirmRun, now time.Time) error {
	kv, err := x.cfg.JetStream.KeyValue(ctx, wire.StatusBucket(x.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.StatusBucket(x.cfg.Site), err)
	}
	if ahead := max(run.VerifiedTo.Sub(now), run.ComparedAt.Sub(now)); ahead > maxSkew {
		x.cfg.Logger.Warn("the clock of a mirror is ahead; its confirmations count as of now", "reader", reader, "by", ahead.Round(time.Second))
	}
	return stream.Save(ctx, kv, wire.PullerStatusKey(reader), wire.PullerStatus{
		ReportedAt: now.UTC(), VerifiedTo: notAfter(run.VerifiedTo, now), ComparedAt: notAfter(run.ComparedAt, now), Owed: run.Owed,
	})
}

// notAfter is the earlier of two times.
func notAfter(a, b time.Time) time.Time {
	if a.Before(b) {
		return a.UTC()
	}
	return b.UTC()
}
