// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Telemetry comes in messages of some 100 ms, and a server has a socket buffer
	// of 208 KiB or more (Linux's default): a burst of burstSize or burstPackets
	// is followed by a pause, so that the server can read.
	burstSize    = 16 << 10
	burstPackets = 32
	burstPause   = time.Millisecond
	// refusalWait is how long a server may take to answer that no process listens.
	refusalWait = 50 * time.Millisecond
)

// datagrams copies datagrams over UDP, which promises nothing: only that no process listens can be
// known.
type datagrams struct{ *copier }

func (d *datagrams) follows(site, instrument string) stream.ReaderConfig {
	return stream.ReaderConfig{Stream: wire.ObservationStream(site), Subject: wire.ObservationSubject(site, instrument, ">"), HeadersOnly: true}
}

// space is for messages of up to 256 KiB. They were announced in their order.
func (d *datagrams) space() (int, time.Duration) { return 4, 0 }

func (d *datagrams) item(m stream.Message) (item, bool, error) {
	if format, err := strconv.Atoi(m.Header.Get(wire.HeaderFormat)); err == nil && format > wire.Format {
		return item{}, false, wire.CheckFormat(format)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(wire.HeaderTime))
	if err != nil || !at.Before(d.entry.Until) {
		return item{}, false, nil
	}
	count, err := strconv.ParseUint(m.Header.Get(wire.HeaderDatagrams), 10, 32)
	if err != nil {
		return item{}, false, nil
	}
	size, err := strconv.ParseUint(m.Header.Get(wire.HeaderDatagramBytes), 10, 64)
	if err != nil {
		return item{}, false, nil
	}
	return item{receivedAt: at, data: m.Data, weight: wire.ForwardTotals{Items: count, Bytes: size}}, true, nil
}

// send sends one message's datagrams, each as one packet.
func (d *datagrams) send(ctx context.Context, items []item) (int, error) {
	conn, err := d.cfg.dialer().DialContext(ctx, "udp", d.entry.Address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	packets, size := 0, 0
	for g, err := range wire.Datagrams(items[0].data) {
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errGone, err)
		}
		if packets++; packets > burstPackets || size > burstSize {
			packets, size = 0, 0
			if !wait(ctx, burstPause) {
				return 0, ctx.Err()
			}
		}
		size += len(g.Payload)
		if _, err := conn.Write(g.Payload); err != nil {
			return 0, err
		}
	}
	return 1, awaitRefusal(conn)
}

// awaitRefusal waits for the answer that no process listens.
func awaitRefusal(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(refusalWait)); err != nil {
		return err
	}
	var answer [1]byte
	for {
		_, err := conn.Read(answer[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
