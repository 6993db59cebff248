// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

const publishTimeout = 10 * time.Second

// A gap is written to the cursor together with the places that follow from it, and its record is
// noted there before it is published. So a feed server that takes over finds the same record, and
// publishes it if the stream does not have it yet: once, however long that takes.
//
// Gap records can leave their stream unread like everything else. If one did, the gap is reported
// to the consumer again, with what it missed since. As long as one waits to be read there is no
// other, however often messages are removed while the consumer is away.

// recordGap notes a gap.
func (w *watch) recordGap(stream string, lost missing) {
	now := time.Now().UTC()
	gap := lost.record(w.consumer, stream, now)
	w.cursor.Untold = addGap(w.cursor.Untold, gap)
	w.cursor.Missing[gap.Reason] += gap.Count
	w.cursor.LastGap, w.dirty, w.unsaved = &now, true, true
	w.meter.Gap(gap.Reason, gap.Count, now)
	w.log.Warn("the consumer missed messages", "stream", gap.Stream, "reason", gap.Reason, "from", gap.From, "to", gap.To, "count", gap.Count)
}

// noteTold sees what became of the last record: place and lost are of the stream of
// notices.
func (w *watch) noteTold(ctx context.Context, before, place wire.DeliveryPlace, lost *missing) error {
	if w.cursor.Told == nil || w.cursor.Sequence == 0 {
		return nil
	}
	stream := wire.NoticeStream(w.cfg.Site)
	left := lost != nil && lost.From <= w.cursor.Sequence && w.cursor.Sequence <= lost.To
	if left && len(w.cursor.Marks[stream]) > 0 { // it may be there, between what is not
		var err error
		if left, err = w.hasLeft(ctx, stream, w.cursor.Sequence); err != nil {
			return err
		}
	}
	switch {
	case left, before.Epoch != place.Epoch:
		w.cursor.Untold = retell(w.cursor.Untold, *w.cursor.Told)
	case place.Next <= w.cursor.Sequence && w.cursor.Marks[stream][w.cfg.Site] <= w.cursor.Sequence:
		return nil // it waits
	}
	w.cursor.Told, w.cursor.Sequence, w.dirty = nil, 0, true
	return nil
}

// tell publishes the next record, if it is due.
func (w *watch) tell(ctx context.Context) error {
	if w.cursor.Told == nil && len(w.cursor.Untold) > 0 {
		w.cursor.Told, w.cursor.Untold = &w.cursor.Untold[0], slices.Clone(w.cursor.Untold[1:])
		w.cursor.Sequence = 0
		w.cursor.Gaps++
		if err := w.save(ctx); err != nil {
			return err
		}
		return w.publish(ctx)
	}
	if w.cursor.Told == nil || w.cursor.Sequence != 0 {
		return nil
	}
	there, err := w.isPublished(ctx)
	if err != nil || there {
		return err
	}
	return w.publish(ctx)
}

// publish publishes the record that is noted.
func (w *watch) publish(ctx context.Context) error {
	gap := *w.cursor.Told
	m, err := w.message(gap)
	if err != nil {
		return err
	}
	if err := w.lease.Check(); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ack, err := w.cfg.JetStream.PublishMsg(call, m)
	if err != nil {
		return fmt.Errorf("publish a gap record: %w", err)
	}
	w.cursor.Sequence, w.dirty = ack.Sequence, true
	w.log.Info("published a gap record for the consumer", "stream", gap.Stream, "reason", gap.Reason, "from", gap.From, "to", gap.To, "count", gap.Count)
	return nil
}

func (w *watch) message(gap wire.Gap) (*nats.Msg, error) {
	data, err := wire.Encode(gap)
	if err != nil {
		return nil, err
	}
	id := wire.GapID(w.cursor.UID, w.cursor.Gaps)
	return gapMessage(w.cfg, wire.GapSubject(w.cfg.Site, w.consumer), w.consumer, id, gap.At, data), nil
}

// gapMessage makes the message of a gap record.
func gapMessage(cfg Config, subject, consumer, id string, at time.Time, data []byte) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = data
	for name, value := range map[string]string{
		wire.HeaderID:          id,
		wire.HeaderMessageID:   id,
		wire.HeaderSpecVersion: wire.SpecVersion,
		wire.HeaderType:        wire.TypeGap,
		wire.HeaderSource:      wire.EventSource(cfg.Site, cfg.Pod),
		wire.HeaderSubject:     consumer,
		wire.HeaderTime:        wire.FormatTime(at),
		wire.HeaderContentType: wire.ContentTypeJSON,
		wire.HeaderFormat:      strconv.Itoa(wire.Format),
	} {
		m.Header.Set(name, value)
	}
	return m
}

// isPublished reports whether the stream has the record that is noted: it would be the
// consumer's last.
func (w *watch) isPublished(ctx context.Context) (bool, error) {
	name := wire.NoticeStream(w.cfg.Site)
	s, err := w.cfg.JetStream.Stream(ctx, name)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", name, err)
	}
	last, err := s.GetLastMsgForSubject(ctx, wire.GapSubject(w.cfg.Site, w.consumer))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("stream %s: %w", name, err)
	case last.Header.Get(wire.HeaderID) != wire.GapID(w.cursor.UID, w.cursor.Gaps):
		return false, nil
	}
	w.cursor.Sequence, w.dirty = last.Sequence, true
	return true, nil
}
