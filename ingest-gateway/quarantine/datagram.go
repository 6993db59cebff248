// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/segment"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// A segment of a stranger's datagrams is closed at this size and age.
	segmentSize = 64 << 10
	segmentAge  = time.Minute
	// flushInterval is how often old ones are looked for.
	flushInterval = 5 * time.Second
	// maxSegments open or waiting at a time: with the greatest datagram in each, 8 MiB.
	maxSegments = 64
)

// packets gathers datagrams by who sent them, and to which port.
type packets struct {
	mu   sync.Mutex
	open map[stranger]*gathering
	full chan *gathering
}

type stranger struct {
	source netip.Addr
	port   uint16
}

type gathering struct {
	stranger
	out         bytes.Buffer
	packets     *segment.Packets
	first, last time.Time
	datagrams   int
	payload     int64 // reserved bytes
}

func (p *packets) init() {
	p.open = map[stranger]*gathering{}
	p.full = make(chan *gathering, maxSegments)
}

// Datagram keeps a datagram of a stranger's, and returns what it counts as:
// CauseQuarantined where it is kept.
func (q *Quarantine) Datagram(d wire.Datagram) wire.Cause {
	p := &q.packets
	p.mu.Lock()
	defer p.mu.Unlock()
	who := stranger{d.Source.Addr().Unmap(), d.DestinationPort}
	g := p.open[who]
	if g == nil {
		if len(p.open)+len(p.full) >= maxSegments {
			return wire.CauseUnknownSource
		}
		g = &gathering{stranger: who, first: d.ReceivedAt.UTC()}
		var err error
		if g.packets, err = segment.NewPackets(&g.out, fmt.Sprintf("quarantine source=%s port=%d", who.source, who.port)); err != nil {
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
	g.last, g.datagrams, g.payload = d.ReceivedAt.UTC(), g.datagrams+1, g.payload+size
	if g.out.Len() < segmentSize {
		return wire.CauseQuarantined
	}
	delete(p.open, who)
	p.full <- g // has room: open and full together are at most maxSegments
	return wire.CauseQuarantined
}

// flush stores the segments that were begun before a time, and those that wait.
func (q *Quarantine) flush(ctx context.Context, before time.Time) {
	p := &q.packets
	var due []*gathering
	p.mu.Lock()
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
	for _, g := range due {
		q.store(ctx, g)
	}
}

// store writes a segment to the bucket. One that the store does not take is lost,
// as what is refused is.
func (q *Quarantine) store(ctx context.Context, g *gathering) {
	q.release(g.payload)
	if err := g.packets.Flush(); err != nil {
		q.lost(g, wire.CauseUndecodable, err)
		return
	}
	body := g.out.Bytes()
	if cause := q.reserve(int64(len(body))); cause != "" {
		q.lost(g, cause, nil)
		return
	}
	what := wire.Quarantined{
		Protocol: wire.ProtocolUDP, Source: g.source.String(), Port: g.port, ReceivedAt: g.last, FirstAt: &g.first,
		Datagrams: g.datagrams, Size: int64(len(body)), Digest: sha256.Sum256(body), Looks: wire.MediaTypeSegment,
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := q.put(ctx, what, bytes.NewReader(body)); err != nil {
		q.release(int64(len(body)))
		q.lost(g, wire.CauseStoreUnavailable, err)
	}
}

func (q *Quarantine) lost(g *gathering, cause wire.Cause, err error) {
	q.cfg.Logger.Warn("datagrams of an unknown sender were not kept", "cause", cause, "source", g.source, "port", g.port,
		"datagrams", g.datagrams, "error", err)
}
