// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// A segment of the datagrams of an unknown sender is closed at this size and age.
	segmentSize = 64 << 10
	segmentAge  = time.Minute
	// flushInterval is how often old ones are looked for.
	flushInterval = 5 * time.Second
	// maxSegments open or waiting at a time: with the greatest datagram in each, 8 MiB.
	maxSegments = 64
	// retryFor is how long the store is asked again to take a segment.
	retryFor = 5 * time.Minute
)

// packets gathers datagrams by sender, port and day: what becomes of them is counted on that day.
type packets struct {
	mu   sync.Mutex
	open map[unknownSender]*gathering
	full chan *gathering
	// refused by the store: it is asked again.
	refused []*gathering
}

type unknownSender struct {
	source netip.Addr
	port   uint16
	day    wire.Day
}

type gathering struct {
	unknownSender
	out         bytes.Buffer
	packets     *pcapng.Packets
	first, last time.Time
	datagrams   int
	reserved    int64 // bytes: of the payloads, then of the whole segment
	closed      bool
	giveUp      time.Time // zero until the store has refused it
}

func (p *packets) init() {
	p.open = map[unknownSender]*gathering{}
	p.full = make(chan *gathering, maxSegments)
}

func (p *packets) waiting() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(len(p.refused))
}

// Datagram gathers a datagram of an unknown sender's, which is settled once its segment is in the
// bucket or lost: see Config.Settled. It returns a cause if it is not gathered.
func (q *Quarantine) Datagram(d wire.Datagram) wire.Cause {
	p := &q.packets
	p.mu.Lock()
	defer p.mu.Unlock()
	who := unknownSender{d.Source.Addr().Unmap(), d.DestinationPort, wire.DayOf(d.ReceivedAt)}
	g := p.open[who]
	if g == nil {
		if len(p.open)+len(p.full)+len(p.refused) >= maxSegments {
			return wire.CauseUnknownSource
		}
		g = &gathering{unknownSender: who, first: d.ReceivedAt.UTC()}
		var err error
		if g.packets, err = pcapng.NewPackets(&g.out, fmt.Sprintf("quarantine source=%s port=%d", who.source, who.port)); err != nil {
			return wire.CauseUnknownSource
		}
	}
	size := int64(len(d.Payload))
	if cause := q.reserve(size); cause != "" {
		return cause
	}
	if err := g.packets.Write(d); err != nil {
		q.release(size)
		return wire.CauseUndecodable
	}
	p.open[who] = g
	g.last, g.datagrams, g.reserved = d.ReceivedAt.UTC(), g.datagrams+1, g.reserved+size
	if g.out.Len() >= segmentSize {
		delete(p.open, who)
		p.full <- g // has space: all together are at most maxSegments
	}
	return ""
}

// flush stores the segments that were begun before a time, and those that wait.
func (q *Quarantine) flush(ctx context.Context, before time.Time) {
	p := &q.packets
	p.mu.Lock()
	due := p.refused
	p.refused = nil
	for who, g := range p.open {
		if g.first.Before(before) {
			delete(p.open, who)
			due = append(due, g)
		}
	}
	for len(p.full) > 0 {
		due = append(due, <-p.full)
	}
	p.mu.Unlock()
	var away error
	for _, g := range due {
		if away != nil { // it is asked once, not once for each
			q.refused(g, away)
			continue
		}
		away = q.store(ctx, g)
	}
}

// finish stores what is left. Segments that the store does not take now are lost.
func (q *Quarantine) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	q.flush(ctx, time.Now().Add(segmentAge))
	q.packets.mu.Lock()
	defer q.packets.mu.Unlock()
	for _, g := range q.packets.refused {
		q.countLost(g, wire.CauseStoreUnavailable, errors.New("the gateway stops"))
	}
}

// store writes a segment to the bucket. It returns the error of a store that does
// not take it; the segment then waits to be stored again, or is lost.
func (q *Quarantine) store(ctx context.Context, g *gathering) error {
	if !q.close(g) {
		return nil
	}
	body := g.out.Bytes()
	what := wire.Quarantined{
		Protocol: wire.ProtocolUDP, Source: g.source.String(), Port: g.port, ReceivedAt: g.last, FirstAt: &g.first,
		Datagrams: g.datagrams, Size: int64(len(body)), Digest: sha256.Sum256(body), Looks: wire.MediaTypeSegment,
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := q.put(ctx, what, bytes.NewReader(body)); err != nil {
		q.refused(g, err)
		return err
	}
	q.cfg.Settled(g.first, wire.CauseQuarantined, g.datagrams)
	return nil
}

// close ends a segment and takes space for the whole of it. It is false where the
// segment is lost.
func (q *Quarantine) close(g *gathering) bool {
	if g.closed {
		return true
	}
	g.closed = true
	q.release(g.reserved)
	g.reserved = 0
	if cause := q.reserve(int64(g.out.Len())); cause != "" {
		q.countLost(g, cause, nil)
		return false
	}
	g.reserved = int64(g.out.Len())
	return true
}

// refused has a segment wait for a store that did not take it, or gives it up.
func (q *Quarantine) refused(g *gathering, err error) {
	now := time.Now()
	if g.giveUp.IsZero() {
		g.giveUp = now.Add(retryFor)
	}
	if now.After(g.giveUp) {
		q.countLost(g, wire.CauseStoreUnavailable, err)
		return
	}
	q.packets.mu.Lock()
	defer q.packets.mu.Unlock()
	q.packets.refused = append(q.packets.refused, g)
}

// countLost counts datagrams that were gathered and are not kept.
func (q *Quarantine) countLost(g *gathering, cause wire.Cause, err error) {
	q.release(g.reserved)
	q.cfg.Settled(g.first, cause, g.datagrams)
	q.cfg.Logger.Warn("datagrams of an unknown sender were not kept", "cause", cause, "source", g.source, "port", g.port,
		"datagrams", g.datagrams, "error", err)
}
