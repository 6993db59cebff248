// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Objects are retracted, restored and purged by requests (wire.ArchiveRequest), which are messages
// in the stream of notices. A request changes nothing by itself. The writer decides about it,
// closes the part that lists the change, and then publishes: the decision, for the requester, and a
// notice of what the object became, for subscribers. So no reader learns of a change that the
// manifests do not have.

// requestPrefix begins the subjects of requests.
const requestPrefix = "request."

const (
	// decidedPause is the shortest time between two parts that are closed for the sake of requests:
	// the requester waits, and each part is an object of the bucket.
	decidedPause = 2 * time.Second
	// decidedBatch messages are on their way at one time.
	decidedBatch = 256
	// decidedTimeout bounds how long a batch may take.
	decidedTimeout = 30 * time.Second
)

// request is a request that was read, with the time at which the stream stored it: that time is the
// same if the request is read twice, as after a kill.
type request struct {
	wire.ArchiveRequest
	at time.Time
}

// did says whether a change that has a time is that which the request asked for.
func (q request) did(at *time.Time) bool { return at != nil && at.Equal(q.at) }

// decision is what was decided about a request, and the object as it was listed by that.
type decision struct {
	wire.ArchiveDecision
	notice *wire.Notice
	// sequence is the request's sequence in the stream.
	sequence uint64
}

func (w *Writer) decodeRequest(m stream.Message) (request, error) {
	q, err := wire.Decode[wire.ArchiveRequest](m.Data)
	if err == nil && (q.Site != w.cfg.Site || m.Subject != wire.RequestSubject(q.Site, q.Instrument)) {
		err = fmt.Errorf("it speaks of instrument %q of site %q: %w", q.Instrument, q.Site, wire.ErrMalformed)
	}
	if err == nil {
		err = m.CheckOrigin(q.Site)
	}
	if err == nil {
		_, err = wire.ParseManifestKey(wire.ManifestPartKey(q.Site, q.Instrument, wire.DayOf(q.ReceivedAt), 1))
	}
	return request{q, m.At.UTC()}, err
}

// takeRequest decides about a request. One that cannot be read, including one of a newer format, is
// ignored: a requester must not be able to stop the archivist.
func (w *Writer) takeRequest(ctx context.Context, m stream.Message) error {
	q, err := w.decodeRequest(m)
	if err != nil {
		w.cfg.Metrics.refused.Inc()
		w.cfg.Log.Error("a request to the archivist cannot be read and is ignored", "subject", m.Subject, "sequence", m.Sequence, "error", err)
		return nil
	}
	d, s, err := w.slot(ctx, q.Instrument, wire.Record{ID: q.ID, ReceivedAt: q.ReceivedAt})
	if err != nil {
		return err
	}
	r, changed, err := w.apply(ctx, d, s, q)
	if errors.Is(err, wire.ErrMalformed) {
		err = errUnreadable
	}
	made := decision{sequence: m.Sequence, ArchiveDecision: wire.ArchiveDecision{Site: q.Site, Instrument: q.Instrument, Run: q.Run, Action: q.Action, ID: q.ID,
		Result: wire.DecisionDone, State: r.State, DecidedAt: time.Now().UTC()}}
	var no *refusal
	switch {
	case errors.As(err, &no):
		made.Result, made.Reason, made.Message = wire.DecisionRefused, no.reason, no.next
		w.noteRefusal(d, q, no)
	case err != nil:
		return err
	case changed:
		made.notice = &wire.Notice{Site: q.Site, Instrument: q.Instrument, Record: r}
		if r.State == wire.StatePurged {
			made.notice.RestoredAt = nil // a notice says one thing
		}
	}
	w.decided = append(w.decided, made)
	if due := w.closedAt.Add(min(decidedPause, w.cfg.PartInterval)); due.Before(w.nextClose) {
		w.nextClose = due
	}
	return nil
}

func (w *Writer) noteRefusal(d *day, q request, no *refusal) {
	w.refusals.note(q.ArchiveRequest, no)
	w.cfg.Metrics.changesRefused.WithLabelValues(no.reason).Inc()
	w.cfg.Log.Error("an object is not retracted", "instrument", q.Instrument, "object", q.ID, "day", d.day,
		"asked", changeOf(q.Action), "by", q.By, "reason", no.reason, "next", no.next)
}

// skipDecided passes over a notice of an object that was retracted: manifests have
// what it says since before it was published. One of anybody else is refused.
func (w *Writer) skipDecided(m stream.Message, n wire.Notice) error {
	if wire.IsDecided(n, m.Header.Get(wire.HeaderSource)) {
		return nil
	}
	w.cfg.Metrics.refused.Inc()
	w.cfg.Log.Error("ignoring a notice of a retraction that does not come from the archivist: request such a change with substorm archive",
		"instrument", n.Instrument, "object", n.ID, "state", n.State, "by", n.ChangedBy, "source", m.Header.Get(wire.HeaderSource), "sequence", m.Sequence)
	return nil
}

// undecided is the sequence of the first request whose decision is not published; 0 if there is
// none. The cursor has it: the next writer decides again from there, with the same result.
func (w *Writer) undecided() uint64 {
	if len(w.decided) == 0 {
		return 0
	}
	return w.decided[0].sequence
}

// publishDecided publishes the decisions, in their order. They are in closed parts by then. Decisions that the stream
// refuses because it is full are kept for the next time.
func (w *Writer) publishDecided(ctx context.Context) error {
	for len(w.decided) > 0 {
		batch := w.decided[:min(decidedBatch, len(w.decided))]
		if err := w.cfg.Lease.Check(); err != nil {
			return err
		}
		err := w.publishBatch(ctx, batch)
		var refused *jetstream.APIError
		if errors.As(err, &refused) {
			// The cursor must not wait for it: it is what lets a full stream be trimmed.
			w.cfg.Log.Warn("cannot publish decisions about requests yet", "decisions", len(w.decided), "error", err)
			return nil
		}
		if err != nil {
			return err
		}
		w.decided = w.decided[len(batch):]
	}
	w.decided = nil
	return nil
}

func (w *Writer) publishBatch(ctx context.Context, batch []decision) error {
	ctx, cancel := context.WithTimeout(ctx, decidedTimeout)
	defer cancel()
	var acks []jetstream.PubAckFuture
	for _, d := range batch {
		messages, err := d.messages()
		if err != nil {
			return err
		}
		for _, m := range messages {
			ack, err := w.cfg.JetStream.PublishMsgAsync(m)
			if err != nil {
				return fmt.Errorf("publish on %s: %w", m.Subject, err)
			}
			acks = append(acks, ack)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("publish on %s: %w", ack.Msg().Subject, err)
		case <-ctx.Done():
			return fmt.Errorf("publish on %s: %w", ack.Msg().Subject, ctx.Err())
		}
	}
	return nil
}

// messages are the notice, where subscribers must know, and then the decision.
func (d decision) messages() ([]*nats.Msg, error) {
	var all []*nats.Msg
	if d.notice != nil {
		m, err := stream.NoticeMessage(*d.notice, wire.ArchivistWriter)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	data, err := wire.Encode(d.ArchiveDecision)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(wire.DecisionSubject(d.Site, d.Instrument, d.Run))
	m.Data = data
	for name, value := range map[string]string{
		wire.HeaderID: d.MessageID(), wire.HeaderMessageID: d.MessageID(), wire.HeaderSpecVersion: wire.SpecVersion,
		wire.HeaderType: wire.TypeDecision, wire.HeaderSource: wire.EventSource(d.Site, wire.ArchivistWriter),
		wire.HeaderTime: wire.FormatTime(d.DecidedAt), wire.HeaderContentType: wire.ContentTypeJSON, wire.HeaderFormat: strconv.Itoa(wire.Format),
	} {
		m.Header.Set(name, value)
	}
	return append(all, m), nil
}
