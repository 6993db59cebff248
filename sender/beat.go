// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// errNoHeartbeat: the server does not know heartbeats.
var errNoHeartbeat = errors.New("the server takes no heartbeats: is it an older gateway?")

// deafFor is how long a server that takes no heartbeats is spared them: they
// cost it a connection each.
const deafFor = time.Hour

// beat sends a heartbeat over every connection that there is, or, if there is none, over a new one
// to address.
func (p *pipes) beat(ctx context.Context, address string, write func(now time.Time) ([]byte, error), heard func(wire.HeartbeatAnswer, time.Time, time.Time)) error {
	p.mu.Lock()
	open := map[string]*server{}
	for a, d := range p.servers {
		if d.mu.TryLock() { // else it is being opened
			if d.pipe != nil && d.pipe.usable() {
				open[a] = d
			}
			d.mu.Unlock()
		}
	}
	p.mu.Unlock()
	if len(open) == 0 {
		if _, err := p.open(ctx, address, 0); err != nil {
			return err
		}
		p.mu.Lock()
		open[address] = p.servers[address]
		p.mu.Unlock()
	}
	var failed error
	for a, d := range open {
		if err := p.beatAt(ctx, d, write, heard); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", a, err))
		}
	}
	return failed
}

func (p *pipes) beatAt(ctx context.Context, d *server, write func(now time.Time) ([]byte, error), heard func(wire.HeartbeatAnswer, time.Time, time.Time)) error {
	d.mu.Lock()
	c, deaf := d.pipe, time.Now().Before(d.deafUntil)
	d.mu.Unlock()
	if deaf {
		return nil
	}
	sent, said, err := c.beat(ctx, write)
	if err != nil {
		return err
	}
	answer, err := wire.ParseHeartbeatAnswer(said.text)
	if err == nil {
		heard(answer, sent, said.at)
		return nil
	}
	c.end(line{err: errNoHeartbeat})
	d.mu.Lock()
	d.deafUntil = time.Now().Add(deafFor)
	d.mu.Unlock()
	return fmt.Errorf("response %.100q: %w", said.text, errNoHeartbeat)
}

// beat sends a frame between two objects, and waits for its answer behind the
// receipts of what was sent before.
func (c *pipe) beat(ctx context.Context, write func(now time.Time) ([]byte, error)) (sent time.Time, said line, err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return sent, said, ctx.Err()
	}
	p := c.enter()
	sent = time.Now()
	frame, err := write(sent)
	if err == nil {
		_ = c.conn.SetWriteDeadline(sent.Add(c.sender.receiptTimeout))
		var n int
		n, err = c.conn.Write(frame)
		c.conn.vitals().wrote(int64(n))
		c.sender.sent(int64(n))
	}
	if err != nil {
		c.end(line{err: err})
	}
	c.endWriting(p, err == nil)
	<-c.turn
	said = <-p.answer
	switch {
	case said.err == nil:
		return sent, said, nil
	case errors.Is(said.err, io.EOF):
		return sent, said, errors.New("the server closed without an answer")
	default:
		return sent, said, said.err
	}
}
