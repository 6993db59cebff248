// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// puts are entries on their way to the bucket.
type puts struct {
	ledger   *Ledger
	ctx      context.Context
	inFlight sync.WaitGroup
	mu       sync.Mutex
	errs     []error
}

func (l *Ledger) newPuts(ctx context.Context) *puts { return &puts{ledger: l, ctx: ctx} }

// put writes what incarnations on this volume received of a day into its entry: those that ended, and this one, where it
// counts. C, if any, is counted as changed again where that fails: with stream.ErrConflict where another pod wrote the
// entry.
func (p *puts) put(c *cell, k dayKey, own *wire.Totals) {
	l := p.ledger
	key := k.entry(l.cfg.Gateway)
	e, err := l.entry(p.ctx, key)
	if err != nil {
		p.fail(c, err)
		return
	}
	e.used = time.Now()
	e.Incarnations = l.merge(e.Incarnations, k, own)
	value, err := wire.Encode(e.LedgerEntry)
	if err != nil {
		p.fail(c, err)
		return
	}
	if bytes.Equal(value, e.value) {
		return
	}
	e.value = value
	p.inFlight.Add(1)
	msg := &nats.Msg{Subject: "$KV." + wire.LedgerBucket(l.cfg.Site) + "." + key, Data: value,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(e.revision, 10)}}}
	err = l.writer.committer.Submit(p.ctx, msg, func(ack stream.Ack, err error) {
		p.finished(e, ack, err)
		if err != nil {
			p.fail(c, err)
		}
		p.inFlight.Done()
	})
	if err != nil {
		p.finished(e, stream.Ack{}, err)
		p.fail(c, err)
		p.inFlight.Done()
	}
}

// merge returns an entry's totals with those of the incarnations on this volume. If counters were lost, the totals
// that were written before count no less than those that are left, see most.
func (l *Ledger) merge(written map[string]wire.Totals, k dayKey, own *wire.Totals) map[string]wire.Totals {
	merged := maps.Clone(written)
	for incarnation, t := range l.ended.totals(k) {
		merged[incarnation] = t
	}
	for incarnation, t := range written {
		if l.ended.isLost(incarnation) {
			merged[incarnation] = mergeGreatest(merged[incarnation], t)
		}
	}
	if own != nil && !isZero(*own) {
		merged[l.cfg.Incarnation] = *own
	}
	return merged
}

// mergeGreatest returns the greater of each count of two totals of one incarnation, which are incomplete. If one of them
// counts something as received, it does not count as unknown, or killed, by the other.
func mergeGreatest(a, b wire.Totals) wire.Totals {
	merged := a
	if b.Objects > a.Objects || b.Objects == a.Objects && b.Resolved > a.Resolved {
		merged.Objects, merged.ObjectBytes, merged.Digest, merged.Resolved, merged.ResolvedBytes = b.Objects, b.ObjectBytes, b.Digest, b.Resolved, b.ResolvedBytes
	}
	if b.Datagrams > a.Datagrams {
		merged.Datagrams, merged.DatagramBytes = b.Datagrams, b.DatagramBytes
	}
	merged.Acknowledged, merged.UnfinishedBytes = max(a.Acknowledged, b.Acknowledged), max(a.UnfinishedBytes, b.UnfinishedBytes)
	merged.Unfinished, merged.Dropped = greaterCounts(a.Unfinished, b.Unfinished), greaterCounts(a.Dropped, b.Dropped)
	merged.Unknown = 0
	merged.Unknown = excess(max(countRead(a), countRead(b)), countRead(merged))
	if _, killed := merged.Unfinished[wire.CauseKilled]; killed {
		merged.Unfinished = maps.Clone(merged.Unfinished)
		delete(merged.Unfinished, wire.CauseKilled)
		if n := excess(max(countBegun(a), countBegun(b)), countBegun(merged)); n > 0 {
			merged.Unfinished[wire.CauseKilled] = n
		}
	}
	merged.Incomplete = true
	return merged
}

// countRead is how many datagrams an incarnation read, begun how many objects it began.
func countRead(t wire.Totals) uint64 { return t.Datagrams + t.Unknown + read(t.Dropped) }
func countBegun(t wire.Totals) uint64 {
	return t.Objects + sum(t.Unfinished) - min(t.Resolved, t.Objects+sum(t.Unfinished))
}

func greaterCounts(a, b map[wire.Cause]uint64) map[wire.Cause]uint64 {
	if len(b) == 0 {
		return a
	}
	greater := maps.Clone(b)
	for cause, n := range a {
		greater[cause] = max(greater[cause], n)
	}
	return greater
}

func isZero(t wire.Totals) bool {
	return t.Objects == 0 && t.Datagrams == 0 && t.Acknowledged == 0 && t.UnfinishedBytes == 0 && t.Resolved == 0 && t.Unknown == 0 &&
		len(t.Unfinished) == 0 && len(t.Dropped) == 0
}

// finished notes the revision that an entry has now.
func (p *puts) finished(e *known, ack stream.Ack, err error) {
	w := &p.ledger.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.outdated = err != nil; err == nil {
		e.revision = ack.Sequence
	}
}

func (p *puts) fail(c *cell, err error) {
	if c != nil {
		c.dirty.Store(true)
	}
	p.mu.Lock()
	p.errs = append(p.errs, err)
	p.mu.Unlock()
}

// wait returns when everything is settled, or with ctx's error. Only the first of the errors is returned.
func (p *puts) wait() error {
	settled := make(chan struct{})
	go func() { p.inFlight.Wait(); close(settled) }()
	select {
	case <-settled:
	case <-p.ctx.Done():
		p.fail(nil, p.ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errs) == 0 {
		return nil
	}
	return fmt.Errorf("write the ledger: %w", p.errs[0])
}
