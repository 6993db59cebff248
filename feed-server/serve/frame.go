// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"slices"
	"sync"

	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/wire"
)

// gathered is what small pieces are copied together into before they are written;
// larger ones are written from where all connections share them.
const gathered = 32 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, gathered); return &b }}

// pieces gathers a message that is written piece by piece.
type pieces struct {
	buffer []byte
	write  func([]byte) error
	bytes  int
	err    error
	// flushed: a part of the message is written.
	flushed bool
}

// add adds a piece that others share.
func (p *pieces) add(piece []byte) {
	p.bytes += len(piece)
	if len(p.buffer)+len(piece) <= cap(p.buffer) {
		p.buffer = append(p.buffer, piece...)
		return
	}
	p.flush()
	if len(piece) <= cap(p.buffer) {
		p.buffer = append(p.buffer, piece...)
		return
	}
	p.put(piece)
}

// head adds a piece that is made in the buffer: small, unlike a shared one.
func (p *pieces) head(write func([]byte) []byte) {
	if cap(p.buffer)-len(p.buffer) < maxHead {
		p.flush()
	}
	was := len(p.buffer)
	p.buffer = write(p.buffer)
	p.bytes += len(p.buffer) - was
}

// maxHead bounds what head adds.
const maxHead = 512

func (p *pieces) flush() {
	if len(p.buffer) > 0 {
		p.put(p.buffer)
		p.buffer = p.buffer[:0]
	}
}

func (p *pieces) put(piece []byte) {
	p.flushed = true
	for part := range slices.Chunk(piece, writtenAtOnce) {
		if p.err == nil {
			p.err = p.write(part)
		}
	}
}

// writtenAtOnce is what a client must take within writeTimeout: it may be on a link
// of some 2 KB/s.
const writtenAtOnce = 64 << 10

// binary adds a wire.Frame.
func (p *pieces) binary(entries []session.Entry, token string) {
	p.head(func(b []byte) []byte { return wire.AppendFrame(b, token) })
	for _, e := range entries {
		payload := e.Payload()
		p.head(func(b []byte) []byte {
			return wire.AppendFrameRecord(b, e.Kind(), len(payload), e.Replaced, e.Sampled)
		})
		p.add(payload)
	}
}

// text adds a wire.FeedMessage.
func (p *pieces) text(e session.Entry, token string) {
	p.head(func(b []byte) []byte { return wire.AppendFeedMessage(b, token, e.Replaced, e.Sampled) })
	if e.Message != nil {
		p.add(e.Message.Text())
	} else {
		p.add(wire.AppendFeedMember(nil, wire.RecordGap, e.Gap))
	}
	p.head(func(b []byte) []byte { return append(b, '}') })
}

// place adds a wire.FeedMessage that holds a place alone.
func (p *pieces) place(token string) {
	p.head(func(b []byte) []byte {
		b = wire.AppendFeedMessage(b, token, 0, 0)
		return append(b[:len(b)-1], '}')
	})
}
