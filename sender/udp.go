// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// maxDatagram is the greatest payload of a UDP packet over IPv4, in bytes (RFC
// 768 and RFC 791: 65535 less 8 and 20 bytes of headers).
const maxDatagram = 65_507

// datagrams sends over UDP, to one address as long as its host takes them. A host on which no
// process listens reports it (ICMP port unreachable, an error of the next call on the socket); then
// the next address is used.
type datagrams struct {
	dialer      net.Dialer
	roster      *roster
	giveUpAfter time.Duration
	// turned is called when a host reported that no process listens: the datagrams sent to it just
	// before are lost.
	turned func(address string, err error)

	conn    net.Conn
	address string
}

// send sends one item as one datagram.
func (d *datagrams) send(ctx context.Context, it item) Result {
	res := Result{Name: it.name, Outcome: Unsent}
	payload, err := readDatagram(it)
	if err != nil {
		res.Error = err.Error()
		return res
	}
	begin := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err = d.round(ctx, payload, &res); err == nil {
			now := time.Now().UTC()
			res.Outcome, res.SentAt, res.Bytes = SentWithoutReceipt, &now, int64(len(payload))
			res.SHA256, res.Error = wire.Digest(sha256.Sum256(payload)).String(), ""
			return res
		}
		res.Error = err.Error()
		if errors.Is(err, syscall.EMSGSIZE) || ctx.Err() != nil || time.Since(begin) >= d.giveUpAfter {
			return res
		}
		if !retry.Sleep(ctx, pause) {
			return res
		}
	}
}

func readDatagram(it item) ([]byte, error) {
	body, err := it.open()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	payload, err := io.ReadAll(io.LimitReader(body, maxDatagram+1))
	switch {
	case err != nil:
		return nil, err
	case len(payload) == 0:
		return nil, errors.New("it is empty")
	case len(payload) > maxDatagram:
		return nil, fmt.Errorf("it has more than %d bytes, the most that a UDP packet carries: send it over TCP, or line by line (--lines)", maxDatagram)
	}
	return payload, nil
}

// round tries the current address, then each other one once.
func (d *datagrams) round(ctx context.Context, payload []byte, res *Result) error {
	var tried []string
	var last error
	for {
		if d.conn == nil {
			address, ok := d.roster.pick(tried)
			if !ok {
				return last
			}
			tried = append(tried, address)
			conn, err := d.dialer.DialContext(ctx, "udp", address)
			if err != nil {
				d.roster.failed(address)
				last = err
				continue
			}
			d.conn, d.address = conn, address
		}
		res.Tries++
		res.Server = d.address
		_, err := d.conn.Write(payload)
		if err == nil {
			return nil
		}
		last = err
		if errors.Is(err, syscall.EMSGSIZE) {
			return err
		}
		d.turn(err)
	}
}

// turn leaves an address that does not take datagrams.
func (d *datagrams) turn(err error) {
	d.roster.failed(d.address)
	d.turned(d.address, err)
	d.conn.Close()
	d.conn = nil
}

// lastLook is how long we listen for a host's late word, after the last datagram.
const lastLook = 300 * time.Millisecond

// finish returns an error if the host reports, after the last datagram, that no process listens.
func (d *datagrams) finish() error {
	if d.conn == nil {
		return nil
	}
	defer d.conn.Close()
	if err := d.conn.SetReadDeadline(time.Now().Add(lastLook)); err != nil {
		return nil
	}
	_, err := d.conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("%s: %w: no process listens there, and the last datagrams are lost", d.address, err)
}
