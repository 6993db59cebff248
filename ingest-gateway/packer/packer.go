// SPDX-License-Identifier: Apache-2.0

// Package packer gathers small objects that arrive together, and stores each such group as one pack.
package packer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultInFlight is how many packs are on their way at a time: one that the
	// store works on, and others that arrive there meanwhile.
	DefaultInFlight = 4
	// maxAge is how long a pack waits for more members while the store is busy.
	maxAge = 50 * time.Millisecond
)

// ErrNoSpace says that there is no memory for another copy of an object: it is to
// be stored by itself.
var ErrNoSpace = errors.New("no memory for a pack")

// errLeft: no caller waits for the pack any more.
var errLeft = errors.New("all members were given up")

// Config says whose packs these are, and where they go.
type Config struct {
	Site, Gateway, Incarnation string
	// Number is the last number that this incarnation used; it is shared by its packers.
	Number *atomic.Uint64
	// Pool has the memory that received objects take. Reserve, where set, is for
	// packs alone and used while Pool is exhausted: a member takes far less than
	// the slab that its object gives back.
	Pool, Reserve *memory.Pool
	// Put stores a pack, create-only. It may try again for as long as ctx lets it.
	Put func(ctx context.Context, key string, body io.ReadSeeker, size int64, digest wire.Digest, members int) error
	// Failed gets a pack that may be stored although Put failed: its members go elsewhere. It must
	// not wait.
	Failed func(key string)
	// InFlight is how many packs may be on their way; 0 is DefaultInFlight.
	InFlight int
}

// Packer gathers members and stores packs. A pack closes at once when none is on
// its way, else when one has arrived, at pack.MaxSize, or after maxAge: so a lone
// object waits for nothing, and the slower the store the more share a request.
//
// It cannot deadlock over memory: members are copied only if that takes no waiting, and an object
// that cannot be copied needs no pack.
type Packer struct {
	cfg Config

	mu       sync.Mutex
	filling  *batch
	due      bool // filling has waited long enough
	closed   []*batch
	inFlight int
}

// NewPacker returns a Packer.
func NewPacker(cfg Config) *Packer {
	if cfg.InFlight <= 0 {
		cfg.InFlight = DefaultInFlight
	}
	return &Packer{cfg: cfg}
}

// batch is a pack before it is stored.
type batch struct {
	key    string
	day    wire.Day
	buffer *memory.Buffer
	count  int

	// holders are the members that were not released, and the goroutine that fills or stores the
	// pack; guarded by the packer's mu.
	holders int
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	done    chan struct{}
	err     error // once done is closed
}

// Member is an object in a pack that is on its way.
type Member struct {
	// Notice has the member's place.
	Notice wire.Notice

	packer *Packer
	batch  *batch
}

// Add copies an object of n.Size bytes into the pack that is being filled. Its
// caller waits for what becomes of it, and then releases it. Errors: ErrNoSpace,
// and those of body.
func (p *Packer) Add(n wire.Notice, body io.Reader) (*Member, error) {
	n.ID, n.Key, n.Offset, n.Length = "", "", 0, 0
	head, err := pack.Header(n)
	if err != nil {
		return nil, err
	}
	need := int64(len(head)) + n.Size + int64(len(pack.Padding(n.Size)))
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.space(n.ReceivedAt, need)
	if b == nil {
		return nil, ErrNoSpace
	}
	if err := b.write(head, body, n.Size); err != nil {
		p.failSpoiled(b)
		return nil, err
	}
	b.count++
	b.holders++
	n.Key = b.key
	n.Offset, n.Length = b.buffer.Size()-n.Size-int64(len(pack.Padding(n.Size))), n.Size
	n.ID = wire.MemberID(n.Key, n.Offset)
	p.launch()
	return &Member{Notice: n, packer: p, batch: b}, nil
}

// space returns the pack that has space for so many more bytes, or nil.
func (p *Packer) space(receivedAt time.Time, need int64) *batch {
	if b := p.filling; b != nil {
		fits := b.day == wire.DayOf(receivedAt) && b.buffer.Size()+need+pack.Trailer <= pack.MaxSize
		if fits && b.buffer.Reserve(need+pack.Trailer) {
			return b
		}
		p.close()
		p.launch()
	}
	for _, pool := range []*memory.Pool{p.cfg.Pool, p.cfg.Reserve} {
		if pool == nil {
			continue
		}
		b := p.begin(pool, receivedAt)
		if b.buffer.Reserve(need + pack.Trailer) {
			p.filling = b
			return b
		}
		b.buffer.Release()
	}
	return nil
}

func (p *Packer) begin(pool *memory.Pool, receivedAt time.Time) *batch {
	b := &batch{
		key: wire.PackKey(p.cfg.Site, receivedAt, p.cfg.Gateway, p.cfg.Incarnation, p.cfg.Number.Add(1)), day: wire.DayOf(receivedAt),
		buffer: pool.NewBuffer(2*pack.MaxSize, func() {}), holders: 1, done: make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	return b
}

func (b *batch) write(head []byte, body io.Reader, size int64) error {
	if _, err := b.buffer.Write(head); err != nil {
		return err
	}
	if n, err := io.CopyN(b.buffer, body, size); err != nil {
		return fmt.Errorf("object of %d bytes ended at %d: %w", size, n, err)
	}
	_, err := b.buffer.Write(pack.Padding(size))
	return err
}

// failSpoiled fails a pack that holds half of a member.
func (p *Packer) failSpoiled(b *batch) {
	p.filling = nil
	if b.timer != nil {
		b.timer.Stop()
	}
	b.err = errors.New("the pack was spoiled by another member")
	close(b.done)
	p.drop(b)
}

// close ends the pack that is being filled.
func (p *Packer) close() {
	b := p.filling
	if b.timer != nil {
		b.timer.Stop()
	}
	_, _ = b.buffer.Write(make([]byte, pack.Trailer)) // for which there is space
	p.filling, p.due = nil, false
	p.closed = append(p.closed, b)
}

// launch sends what may go.
func (p *Packer) launch() {
	if b := p.filling; b != nil && b.count > 0 && len(p.closed) == 0 {
		switch {
		case p.inFlight == 0, p.due && p.inFlight < p.cfg.InFlight:
			p.close()
		case b.timer == nil:
			b.timer = time.AfterFunc(maxAge, func() { p.aged(b) })
		}
	}
	for len(p.closed) > 0 && p.inFlight < p.cfg.InFlight {
		b := p.closed[0]
		p.closed[0] = nil
		p.closed = p.closed[1:]
		p.inFlight++
		if b.holders == 1 {
			b.cancel(errLeft)
		}
		go p.storePack(b)
	}
}

func (p *Packer) aged(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling == b {
		p.due = true
		p.launch()
	}
}

// storePack stores a pack.
func (p *Packer) storePack(b *batch) {
	err := p.put(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	b.err = err
	close(b.done)
	p.drop(b)
	p.inFlight--
	p.launch()
}

func (p *Packer) put(b *batch) error {
	body, digest := b.buffer.Reader(), sha256.New()
	if _, err := io.Copy(digest, body); err != nil {
		return err
	}
	err := p.cfg.Put(b.ctx, b.key, body, b.buffer.Size(), wire.Digest(digest.Sum(nil)), b.count)
	if err != nil {
		p.cfg.Failed(b.key)
	}
	return err
}

// drop gives a pack's memory back once it has no reader; a pack that no caller waits for is given
// up.
func (p *Packer) drop(b *batch) {
	b.holders--
	switch b.holders {
	case 0:
		b.cancel(nil)
		b.buffer.Release()
	case 1:
		if p.filling != b { // only its storer is left, or one reader after that
			b.cancel(errLeft)
		}
	}
}

// Wait returns what became of the pack: nil once it is stored, or what Put
// returned, or ctx's error.
func (m *Member) Wait(ctx context.Context) error {
	select {
	case <-m.batch.done:
		return m.batch.err
	case <-ctx.Done():
		return fmt.Errorf("pack %s: %w", m.batch.key, context.Cause(ctx))
	}
}

// Reader reads the member's bytes, once Wait has returned an error of Put and
// until Release.
func (m *Member) Reader() io.ReadSeeker {
	return io.NewSectionReader(m.batch.buffer.Bytes(), m.Notice.Offset, m.Notice.Length)
}

// Release says that the member's bytes are not needed here any more.
func (m *Member) Release() {
	m.packer.mu.Lock()
	defer m.packer.mu.Unlock()
	m.packer.drop(m.batch)
}
