// SPDX-License-Identifier: Apache-2.0

package crowd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/wire"
)

// source is a connection.
type source interface {
	// next returns the samples that came; they are valid until it is called again.
	next(ctx context.Context) ([][]byte, error)
	close()
}

// slowBuffer is what the kernel keeps for a consumer that does not read, in bytes.
const slowBuffer = 64 << 10

// chunk is how much a thin link carries at a time, in bytes.
const chunk = 2500

// link counts what is read, and is thin where it should be.
type link struct {
	net.Conn
	wire *atomic.Int64
	thin bool
}

func (l *link) Read(b []byte) (int, error) {
	if l.thin {
		b = b[:min(len(b), chunk)]
	}
	n, err := l.Conn.Read(b)
	l.wire.Add(int64(n))
	if l.thin {
		time.Sleep(time.Duration(n) * time.Second / ThinRate)
	}
	return n, err
}

func dial(ctx context.Context, c Consumer, protocol Protocol, r *reader) (source, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if c.Kind != Fast {
				if err := conn.(*net.TCPConn).SetReadBuffer(slowBuffer); err != nil {
					return nil, err
				}
			}
			return &link{Conn: conn, wire: &r.wire, thin: c.Kind == Thin}, nil
		},
	}}
	options := &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{}}
	if protocol == Substorm {
		options.Subprotocols = []string{wire.SubprotocolBinary}
	}
	if c.Token != "" {
		options.HTTPHeader.Set("Authorization", "Bearer "+c.Token)
	}
	conn, resp, err := websocket.Dial(ctx, c.URL, options) //nolint:bodyclose // a WebSocket's answer has none, and of another the library has read it
	if err != nil {
		if resp != nil && resp.Body != nil {
			said, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	conn.SetReadLimit(-1)
	m := messages{conn: conn}
	switch protocol {
	case Substorm:
		return &frames{messages: m}, nil
	case Whole:
		return &m, nil
	case NATS:
		n := &protocolOfNATS{messages: m}
		return n, n.subscribe(ctx, c.Subject)
	}
	return nil, fmt.Errorf("no protocol is called %q", protocol)
}

// messages gives each message of a WebSocket.
type messages struct {
	conn    *websocket.Conn
	buffer  bytes.Buffer
	samples [][]byte
}

func (m *messages) close() { _ = m.conn.CloseNow() }

// read returns the next message.
func (m *messages) read(ctx context.Context) ([]byte, error) {
	_, r, err := m.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	m.buffer.Reset()
	_, err = m.buffer.ReadFrom(r)
	return m.buffer.Bytes(), err
}

func (m *messages) next(ctx context.Context) ([][]byte, error) {
	message, err := m.read(ctx)
	m.samples = append(m.samples[:0], message)
	return m.samples, err
}

// frames gives the datagrams of feed-server's frames.
type frames struct{ messages }

func (f *frames) next(ctx context.Context) ([][]byte, error) {
	message, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	frame, err := wire.DecodeFrame(message)
	if err != nil {
		return nil, err
	}
	f.samples = f.samples[:0]
	for _, record := range frame.Records {
		if record.Kind != wire.RecordTelemetry {
			continue
		}
		for d, err := range wire.Datagrams(record.Payload) {
			if err != nil {
				return nil, err
			}
			f.samples = append(f.samples, d.Payload)
		}
	}
	return f.samples, nil
}

// protocolOfNATS reads what a NATS server sends: lines, and payloads behind those
// that begin with MSG.
type protocolOfNATS struct {
	messages
	rest     []byte
	answered bool
}

// subscribe returns once the server has answered what was said before.
func (n *protocolOfNATS) subscribe(ctx context.Context, subject string) error {
	const hello = `CONNECT {"verbose":false,"pedantic":false,"lang":"go","version":"1","protocol":1}`
	err := n.conn.Write(ctx, websocket.MessageBinary, fmt.Appendf(nil, "%s\r\nSUB %s 1\r\nPING\r\n", hello, subject))
	for err == nil && !n.answered {
		_, err = n.next(ctx)
	}
	return err
}

func (n *protocolOfNATS) next(ctx context.Context) ([][]byte, error) {
	message, err := n.read(ctx)
	if err != nil {
		return nil, err
	}
	n.rest = append(n.rest, message...)
	n.samples = n.samples[:0]
	b := n.rest
	for {
		line, behind, found := bytes.Cut(b, []byte("\r\n"))
		if !found {
			break
		}
		switch text := string(line); {
		case strings.HasPrefix(text, "MSG "):
			fields := strings.Fields(text)
			size, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return nil, fmt.Errorf("NATS says %q", text)
			}
			if len(behind) < size+2 {
				n.keep(b)
				return n.samples, nil
			}
			n.samples = append(n.samples, bytes.Clone(behind[:size]))
			behind = behind[size+2:]
		case text == "PING":
			if err := n.conn.Write(ctx, websocket.MessageBinary, []byte("PONG\r\n")); err != nil {
				return nil, err
			}
		case text == "PONG":
			n.answered = true
		case strings.HasPrefix(text, "-ERR"):
			return nil, errors.New(text)
		}
		b = behind
	}
	n.keep(b)
	return n.samples, nil
}

// keep takes what is not read yet to the next message.
func (n *protocolOfNATS) keep(b []byte) { n.rest = append(n.rest[:0], b...) }
