// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// confirmAfter is how long after the first recount the second and last follows: what a killed process wrote to its
	// connection may still be on its way to the server.
	confirmAfter = time.Minute
	passes       = 2
	retryAfter   = 5 * time.Second
	// nextTimeout is how long the next message of a scan may take.
	nextTimeout = 20 * time.Second
	scanAhead   = 4096
)

// recountPrevious counts what previous incarnations announced, and writes their totals. After the last pass their files
// are removed.
func (l *Ledger) recountPrevious(ctx context.Context) error {
	w := &l.writer
	if len(w.previous) == 0 || w.kv == nil || !w.adopted.Load() || time.Now().Before(w.recounts) {
		return nil
	}
	w.recounts = time.Now().Add(retryAfter) // unless all goes well
	l.previous.Lock()
	r := newRecount(l.cfg, w.previous)
	l.previous.Unlock()
	if err := r.scan(ctx, w.js); err != nil {
		return fmt.Errorf("recount: %w", err)
	}
	p := l.newPuts(ctx)
	for _, prev := range w.previous {
		l.previous.Lock()
		final := r.counts[prev.incarnation].totals(prev)
		l.previous.Unlock()
		if err := l.withWritten(ctx, prev, final); err != nil {
			return err
		}
		for key, totals := range final {
			e, err := l.entry(ctx, key.key(l.cfg.Gateway))
			if err != nil {
				return err
			}
			// Where nothing is left of what it wrote, as where it adopted and announced nothing, that is written, too.
			if _, wrote := e.Incarnations[prev.incarnation]; isZero(totals) && !wrote {
				continue
			}
			p.put(nil, key.key(l.cfg.Gateway), prev.incarnation, totals)
		}
	}
	if err := p.wait(); err != nil {
		return err
	}
	w.recounts = time.Now().Add(l.cfg.confirmAfter)
	var left []*previous
	for _, prev := range w.previous {
		if prev.passes++; prev.passes < passes {
			left = append(left, prev)
			continue
		}
		l.log.Info("the totals of an earlier incarnation are final", "incarnation", prev.incarnation)
		if err := removeFiles(prev.path); err != nil {
			return err
		}
	}
	l.previous.Lock()
	w.previous = left
	l.previous.Unlock()
	return nil
}

// recount counts publications of previous incarnations in the base streams.
type recount struct {
	cfg    Config
	counts map[string]*counted // by incarnation
}

// counted are an incarnation's publications from its checkpoint on.
type counted struct {
	checkpoint checkpoint
	seen       map[uint64]bool // numbers: a message can be in the stream twice
	days       map[dayKey]announced
}

type dayKey struct {
	instrument string
	day        wire.Day
}

func newRecount(cfg Config, previous []*previous) *recount {
	r := &recount{cfg: cfg, counts: map[string]*counted{}}
	for _, p := range previous {
		c := &counted{checkpoint: p.checkpoint, seen: map[uint64]bool{}, days: map[dayKey]announced{}}
		for _, s := range p.checkpoint.Settled {
			k := dayKey{s.Instrument, s.Day}
			c.days[k] = c.days[k].plus(s.announced)
		}
		r.counts[p.incarnation] = c
	}
	return r
}

// scan reads both base streams from the earliest checkpoint to where they end now.
func (r *recount) scan(ctx context.Context, js jetstream.JetStream) error {
	observations := func(p position) place { return p.Observations }
	if err := r.scanStream(ctx, js, wire.ObservationStream(r.cfg.Site), observations, true, r.telemetry); err != nil {
		return err
	}
	notices := func(p position) place { return p.Notices }
	return r.scanStream(ctx, js, wire.NoticeStream(r.cfg.Site), notices, false, r.notice)
}

func (r *recount) scanStream(
	ctx context.Context, js jetstream.JetStream, name string, of func(position) place, headersOnly bool, count func(jetstream.Msg),
) error {
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := js.Stream(ask, name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	info := s.CachedInfo()
	from := r.from(wire.StreamEpoch(info.Created), info.State.LastSeq, of)
	if info.State.Msgs == 0 || from >= info.State.LastSeq {
		return nil
	}
	consumer, err := s.OrderedConsumer(ask, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from + 1, HeadersOnly: headersOnly,
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(scanAhead))
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	defer messages.Stop()
	for {
		next, cancel := context.WithTimeout(ctx, nextTimeout)
		msg, err := messages.Next(jetstream.NextContext(next))
		cancel()
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		count(msg)
		at, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		if at.Sequence.Stream >= info.State.LastSeq || at.NumPending == 0 {
			return nil
		}
	}
}

// from returns the earliest of the incarnations' positions in the stream of that epoch, which ends at last.
func (r *recount) from(epoch string, last uint64, of func(position) place) uint64 {
	from := last
	for _, c := range r.counts {
		at := of(c.checkpoint.From)
		if at.Epoch != epoch || at.Sequence > last {
			return 0
		}
		from = min(from, at.Sequence)
	}
	return from
}

func (r *recount) telemetry(msg jetstream.Msg) {
	h := msg.Headers()
	c := r.mine(h.Get(wire.HeaderID))
	if c == nil {
		return
	}
	_, instrument, _, err := wire.ParseObservationSubject(msg.Subject())
	if err != nil {
		return
	}
	at, err1 := time.Parse(time.RFC3339Nano, h.Get(wire.HeaderTime))
	n, err2 := strconv.ParseUint(h.Get(wire.HeaderDatagrams), 10, 64)
	size, err3 := strconv.ParseUint(h.Get(wire.HeaderDatagramBytes), 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return
	}
	c.add(dayKey{instrument, wire.DayOf(at)}, announced{Datagrams: n, DatagramBytes: size})
}

func (r *recount) notice(msg jetstream.Msg) {
	c := r.mine(msg.Headers().Get(wire.HeaderPublication))
	if c == nil {
		return
	}
	n, err := wire.DecodeNotice(msg.Data())
	if err != nil {
		return
	}
	a := announced{Objects: 1, ObjectBytes: uint64(n.Size), Digest: n.Digest}
	if _, incarnation, _, err := wire.ParsePublicationID(msg.Headers().Get(wire.HeaderPublication)); err != nil || incarnation != n.Incarnation {
		a.Adopted, a.AdoptedBytes = 1, a.ObjectBytes
	}
	c.add(dayKey{n.Instrument, wire.DayOf(n.ReceivedAt)}, a)
}

// mine returns the incarnation that a publication is of, if it is one of ours and counts from its checkpoint on.
func (r *recount) mine(id string) *counted {
	gateway, incarnation, number, err := wire.ParsePublicationID(id)
	if err != nil || gateway != r.cfg.Gateway {
		return nil
	}
	c := r.counts[incarnation]
	if c == nil || number < c.checkpoint.First || c.seen[number] {
		return nil
	}
	c.seen[number] = true
	return c
}

func (c *counted) add(k dayKey, a announced) { c.days[k] = c.days[k].plus(a) }
