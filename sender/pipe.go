// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// pipes send objects of the framing LengthPrefixed: over one connection to each
// server, one behind another, without waiting for the receipts of earlier ones.
// As many attempts as run at a time are on their way.
type pipes struct {
	sender *sender
	// run ends all connections: they outlive the tries for which they were made.
	run context.Context

	// commanded, if set, takes the lines of commands; changed is called then when a connection was
	// made, or has ended. Neither waits.
	commanded func(line string)
	changed   func()

	mu      sync.Mutex
	servers map[string]*server
}

// server is what is known of one server.
type server struct {
	mu   sync.Mutex // held while dialing: one connection, however many ask
	pipe *pipe
	// deafUntil is when heartbeats are tried again.
	deafUntil time.Time
}

func newPipes(ctx context.Context, s *sender) *pipes {
	return &pipes{sender: s, run: ctx, servers: map[string]*server{}}
}

// attempt sends an object and waits for its receipt.
func (p *pipes) attempt(ctx context.Context, address string, it item, u *pulse) verdict {
	body, err := it.open()
	if err != nil {
		return verdict{local: true, err: err}
	}
	defer body.Close()
	size, err := sizeOf(body, it)
	switch {
	case err != nil:
		return verdict{local: true, err: err}
	case size == 0:
		return verdict{local: true, err: errEmpty}
	case size > wire.MaxPrefixed:
		return verdict{local: true, err: fmt.Errorf("it has %d bytes, more than a length prefix can hold: send it with --framing until-close", size)}
	}
	c, err := p.open(ctx, address, it.connectWithin)
	if err != nil {
		return verdict{err: err}
	}
	u.setConn(c.conn.vitals())
	v := c.send(ctx, it, body, size, u)
	if !v.receipted {
		p.sender.lost(v.taken)
	}
	return v
}

// sizeOf returns how many bytes an item has now: a file may have grown since it
// was found.
func sizeOf(body io.Reader, it item) (int64, error) {
	file, ok := body.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return it.size, nil
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// open returns the connection to a server, and makes one if there is none.
func (p *pipes) open(ctx context.Context, address string, within time.Duration) (*pipe, error) {
	p.mu.Lock()
	d := p.servers[address]
	if d == nil {
		d = &server{}
		p.servers[address] = d
	}
	p.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pipe != nil && d.pipe.usable() {
		return d.pipe, nil
	}
	tcp, err := p.sender.dial(ctx, address, within)
	if err != nil {
		return nil, err
	}
	d.pipe = newPipe(p, tcp)
	if p.commanded != nil {
		p.changed()
	}
	return d.pipe, nil
}

// close ends all connections, between objects: cleanly.
func (p *pipes) close() {
	for _, d := range p.servers {
		if d.pipe != nil {
			d.pipe.finish()
		}
	}
}

// pipe is one connection.
type pipe struct {
	sender *sender
	all    *pipes
	conn   socket
	stop   func() bool
	// turn is held by who writes.
	turn chan struct{}
	// gone is closed once the connection is of no use any more.
	gone chan struct{}

	mu sync.Mutex
	// waiting are the objects without an answer, in the order in which they were
	// sent; the last one may still be on its way out.
	waiting []*parcel
	// over is why the connection is of no use: what the server said unasked, or
	// what went wrong.
	over *line
}

// parcel is an object in a pipe.
type parcel struct {
	answer  chan line // gets one line
	leaving bool      // it is being written
	dropped bool      // no caller waits for the answer any more
}

func newPipe(p *pipes, conn socket) *pipe {
	c := &pipe{sender: p.sender, all: p, conn: conn, turn: make(chan struct{}, 1), gone: make(chan struct{})}
	c.stop = context.AfterFunc(p.run, func() { c.end(line{err: p.run.Err()}) })
	go c.listen()
	return c
}

func (c *pipe) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over == nil
}

// end makes the connection useless and resets it. Objects that wait get said as their answer.
func (c *pipe) end(said line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return
	}
	c.over = &said
	close(c.gone)
	for _, p := range c.waiting {
		if !p.dropped {
			p.answer <- said
		}
	}
	c.waiting = nil
	_ = c.conn.Close()
	if c.all.commanded != nil {
		c.all.changed()
	}
}

// finish ends a connection over which nothing is on its way.
func (c *pipe) finish() {
	c.stop()
	c.mu.Lock()
	if len(c.waiting) == 0 && c.over == nil {
		c.conn.finish()
	}
	c.mu.Unlock()
	c.end(line{err: net.ErrClosed})
}

// listen reads the server's lines: each answers the oldest object without one, but
// for commands.
func (c *pipe) listen() {
	longest := wire.MaxReceiptLine
	if c.all.commanded != nil {
		longest = wire.MaxCommandLine
	}
	in := bufio.NewReaderSize(c.conn, longest)
	for {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = fmt.Errorf("the server answers with more than a line (%q…): is it a gateway?", text[:32])
		}
		if err != nil {
			c.end(line{err: err})
			return
		}
		if _, _, ok := wire.ParseCommand(string(text)); ok && c.all.commanded != nil {
			c.all.commanded(string(text))
			continue
		}
		c.conn.vitals().heard()
		if !c.answer(line{text: string(text), at: time.Now()}) {
			return
		}
	}
}

// answer gives a line to the waiting caller, and reports whether more may come.
func (c *pipe) answer(said line) bool {
	c.mu.Lock()
	if c.over != nil {
		c.mu.Unlock()
		return false
	}
	if len(c.waiting) == 0 { // unasked: why it takes nothing
		c.mu.Unlock()
		c.end(said)
		return false
	}
	p := c.waiting[0]
	c.waiting = c.waiting[1:]
	if !p.dropped {
		p.answer <- said
	}
	if p.leaving { // it is refused, and its rest would be for nothing
		_ = c.conn.SetWriteDeadline(time.Now())
	}
	c.touch()
	c.mu.Unlock()
	return true
}

// touch gives the server time for its next line, while one is due. The caller
// holds mu.
func (c *pipe) touch() {
	var until time.Time
	if len(c.waiting) > 0 {
		until = time.Now().Add(c.sender.receiptTimeout)
	}
	_ = c.conn.SetReadDeadline(until)
}

// send sends an object when it is its turn, and waits for its answer.
func (c *pipe) send(ctx context.Context, it item, body io.Reader, size int64, u *pulse) verdict {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return verdict{err: ctx.Err()}
	}
	if !u.begins() {
		<-c.turn
		return verdict{err: errAside}
	}
	p := c.enter()
	defer context.AfterFunc(ctx, func() { c.drop(p, ctx.Err()) })()
	v := c.transmit(it, body, size, p)
	if v.local {
		// The length that was announced will not come.
		c.end(line{err: fmt.Errorf("the connection was given up in the middle of another object: %w", v.err)})
	}
	if v.whole {
		u.markWritten()
	}
	c.endWriting(p, v.whole)
	<-c.turn
	if v.local {
		return v
	}
	said := <-p.answer
	if !v.whole {
		c.end(line{err: errors.New("the connection was given up in the middle of another object")})
	}
	return c.verdict(ctx, v, said)
}

// verdict is what an object came to whose answer is there.
func (c *pipe) verdict(ctx context.Context, v verdict, said line) verdict {
	switch {
	case said.err == nil:
		return v.judged(said.text)
	case ctx.Err() != nil:
		v.err = ctx.Err()
	case errors.Is(said.err, os.ErrDeadlineExceeded) && v.whole:
		v.err = fmt.Errorf("no receipt within %v: is tcp.framing of the Instrument LengthPrefixed?", c.sender.receiptTimeout)
	case v.err == nil || !errors.Is(said.err, os.ErrDeadlineExceeded) && !errors.Is(said.err, net.ErrClosed):
		v.err = c.sender.silence(said.err, v.whole)
	}
	return v
}

// drop records that the caller waits for an object's answer no longer. It closes a connection with
// a partial object, or one whose answers no caller waits for.
func (c *pipe) drop(p *parcel, why error) {
	c.mu.Lock()
	at := slices.Index(c.waiting, p)
	if at < 0 || p.dropped { // it has its answer
		c.mu.Unlock()
		return
	}
	p.dropped = true
	p.answer <- line{err: why}
	useless := p.leaving || !slices.ContainsFunc(c.waiting, func(o *parcel) bool { return !o.dropped })
	c.mu.Unlock()
	if useless {
		c.end(line{err: errors.New("the server was silent, and the connection is given up")})
	}
}

// enter puts an object behind the waiting ones. If the connection is of no use any more, its answer is there at
// once.
func (c *pipe) enter() *parcel {
	p := &parcel{answer: make(chan line, 1), leaving: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		p.answer <- *c.over
		return p
	}
	if len(c.waiting) == 0 {
		c.conn.vitals().begin()
	}
	c.waiting = append(c.waiting, p)
	c.touch()
	return p
}

// endWriting records that no more of an object is written. An object that was broken off may still get an
// answer: a refusal travels just ahead of its reset.
func (c *pipe) endWriting(p *parcel, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.leaving = false
	if !whole && c.over == nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(lateWord))
	}
}

// transmit writes an object's length and bytes, unless its answer comes before.
func (c *pipe) transmit(it item, body io.Reader, size int64, p *parcel) verdict {
	var v verdict
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b, digest := *buffer, sha256.New()
	binary.BigEndian.PutUint32(b, uint32(size))
	for begin, left := wire.PrefixSize, size; left > 0; begin = 0 {
		n, err := io.ReadFull(body, b[begin:min(int64(len(b)), int64(begin)+left)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it became shorter while it was sent")
		}
		if err != nil {
			return verdict{local: true, err: err, taken: v.taken}
		}
		digest.Write(b[begin : begin+n])
		left -= int64(n)
		v.bytes += int64(n)
		if left == 0 {
			if err := it.checkUnchanged(sum(digest)); err != nil {
				return verdict{local: true, err: err, taken: v.taken}
			}
		}
		taken, err := c.sender.write(c.conn, b[:begin+n], p.answer)
		v.taken += taken
		if err != nil || taken < int64(begin+n) || len(p.answer) > 0 && left > 0 {
			v.err = err
			return v
		}
		c.mu.Lock()
		c.touch()
		c.mu.Unlock()
	}
	v.digest, v.whole = sum(digest), true
	return v
}
