// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	dialTimeout = 10 * time.Second
	// stall is how long a server may take nothing, or not end a connection.
	stall = 5 * time.Minute
	// maxTogether bounds how many share a connection, and so how many may come twice.
	maxTogether = 64
	// damagedTries is how often an object is fetched whose bytes are wrong.
	damagedTries = 3
)

// objects copies objects over TCP. Objects that came with framing, which separates them, share a
// connection; each other object has its own, whose end is the object's end. An object counts as
// sent when the server ended its side after we ended ours: it has read everything then. If we die
// before that is known, the connection is reset, so that the server can tell.
type objects struct {
	*copier
	// damaged is the object whose bytes were wrong lately, so many times.
	damaged string
	tries   int
}

func (o *objects) follows(site, instrument string) stream.ReaderConfig {
	return stream.ReaderConfig{Stream: wire.NoticeStream(site), Subject: wire.NoticeSubject(site, instrument),
		More: []string{wire.BackfillSubject(site, instrument)}}
}

// space: some hundreds of small records. Objects that are stored and announced within two seconds of their neighbors,
// as all are except spooled or large ones, are sent in the order in which they were received.
func (o *objects) space() (int, time.Duration) { return 512, 2 * time.Second }

func (o *objects) item(m stream.Message) (item, bool, error) {
	n, err := wire.Decode[wire.Notice](m.Data)
	if errors.Is(err, wire.ErrNewerFormat) {
		return item{}, false, err
	}
	if m.Header.Get(wire.HeaderRefilled) != "" {
		return item{}, false, nil // its first notice was for the copy, and that was counted as lost if it was not sent
	}
	if err != nil || n.State != wire.StateCurrent || n.RestoredAt != nil || n.Segment != nil || n.Gateway == wire.ImportWriter || !n.ReceivedAt.Before(o.entry.Until) {
		return item{}, false, nil // what cannot be read no manifest lists, either
	}
	return item{receivedAt: n.ReceivedAt, notice: n, weight: wire.ForwardTotals{Items: 1, Bytes: uint64(n.Size)}}, true, nil
}

func (o *objects) send(ctx context.Context, items []item) (int, error) {
	c, err := o.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.close()
	items = o.together(items)
	for i := range items {
		err := o.write(ctx, c, &items[i].notice)
		if err != nil && i > 0 && (errors.Is(err, errGone) || errors.Is(err, errDuplicate)) {
			items = items[:i] // it is the next one's turn to be left out
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if err := c.finish(); err != nil {
		return 0, err
	}
	return len(items), nil
}

// together returns those of the first items that share a connection. One whose
// bytes were wrong spoils no other's.
func (o *objects) together(items []item) []item {
	framing := items[0].notice.Framing
	n := 1
	for framing != "" && n < min(len(items), maxTogether) && items[n].notice.Framing == framing && items[n].notice.ID != o.damaged {
		n++
	}
	return items[:n]
}

// write sends an object's bytes. If they are elsewhere by now, the notice says so afterwards.
func (o *objects) write(ctx context.Context, c *connection, n *wire.Notice) error {
	for {
		err := objectpath.Append(ctx, o.cfg.Store, n.Record, c)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, objectstore.ErrNotFound):
			if err := o.locate(ctx, n); err != nil {
				return err
			}
			continue
		case errors.Is(err, objectpath.ErrDamaged) && o.isDamaged(n.ID):
			return fmt.Errorf("%w: %w", errGone, err)
		}
		return fmt.Errorf("send %s: %w", n.ID, err)
	}
}

// isDamaged says whether an object's bytes were wrong once too often.
func (o *objects) isDamaged(id string) bool {
	if o.damaged != id {
		o.damaged, o.tries = id, 0
	}
	o.tries++
	return o.tries >= damagedTries
}

// locate finds the place of an object that is no longer where its notice says.
func (o *objects) locate(ctx context.Context, n *wire.Notice) error {
	day := wire.DayOf(n.ReceivedAt)
	for r, err := range manifest.Records(ctx, o.cfg.Store, o.cfg.Site, n.Instrument, day) {
		switch {
		case err != nil:
			return err
		case r.ID != n.ID:
		case r.State == wire.StateDuplicate:
			return errDuplicate
		case r.State == wire.StateCurrent && (r.Key != n.Key || r.Offset != n.Offset):
			n.Record = r
			return nil
		}
	}
	return fmt.Errorf("%w: %s holds no %s any more", errGone, "the store", n.Key)
}

// connection goes to an old server.
type connection struct {
	*net.TCPConn
	stop    func() bool
	stall   time.Duration
	written int64
}

func (o *objects) dial(ctx context.Context) (*connection, error) {
	conn, err := o.cfg.dialer().DialContext(ctx, "tcp", o.entry.Address)
	if err != nil {
		return nil, err
	}
	c := &connection{TCPConn: conn.(*net.TCPConn), stall: o.cfg.stall}
	_ = c.SetLinger(0) // a death resets
	c.stop = context.AfterFunc(ctx, func() { c.TCPConn.Close() })
	return c, nil
}

func (c *connection) close() {
	c.stop()
	c.TCPConn.Close()
}

// Write writes as fast as the server reads.
func (c *connection) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	n, err := c.TCPConn.Write(p)
	c.written += int64(n)
	return n, err
}

// ReadFrom is hidden, so that copying to a connection goes by Write.
func (c *connection) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(writeOnly{c}, r)
}

type writeOnly struct{ io.Writer }

// finish ends our side and waits for the server to end its own. Data that the server sends
// meanwhile, perhaps receipts, is discarded.
func (c *connection) finish() error {
	if err := c.CloseWrite(); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c.TCPConn); err != nil {
		return fmt.Errorf("the server does not end the connection: %w", err)
	}
	return c.SetLinger(-1)
}
