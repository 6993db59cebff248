// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// dialog is a connection that carries many objects.
type dialog struct {
	t    *testing.T
	conn *net.TCPConn
	in   *bufio.Reader
}

func newDialog(t *testing.T, port int) *dialog {
	t.Helper()
	conn := dial(t, port)
	t.Cleanup(func() { conn.Close() })
	return &dialog{t: t, conn: conn, in: bufio.NewReader(conn)}
}

func (d *dialog) write(b []byte) {
	d.t.Helper()
	if _, err := d.conn.Write(b); err != nil {
		d.t.Fatal(err)
	}
}

// fin ends the sender's side.
func (d *dialog) fin() {
	d.t.Helper()
	if err := d.conn.CloseWrite(); err != nil {
		d.t.Fatal(err)
	}
}

// reset ends the connection as a dying host would not: at once.
func (d *dialog) reset() {
	_ = d.conn.SetLinger(0)
	_ = d.conn.Close()
}

// line reads the next line.
func (d *dialog) line() (wire.Receipt, error) {
	_ = d.conn.SetReadDeadline(time.Now().Add(patience))
	text, err := d.in.ReadString('\n')
	if err != nil {
		return wire.Receipt{}, err
	}
	return wire.ParseReceipt(text)
}

// stored expects the receipts of objects, in this order.
func (d *dialog) stored(objects ...[]byte) {
	d.t.Helper()
	for i, o := range objects {
		got, err := d.line()
		if want := receiptOf(o); err != nil || got != want {
			d.t.Fatalf("object %d: receipt %+v, %v; want %+v", i, got, err, want)
		}
	}
}

func (d *dialog) refused(cause wire.Cause) {
	d.t.Helper()
	if got, err := d.line(); err != nil || got.Refused != cause {
		d.t.Fatalf("receipt %+v, %v; want a refusal for %s", got, err, cause)
	}
}

// ended expects a clean end without another line.
func (d *dialog) ended() {
	d.t.Helper()
	if got, err := d.line(); !errors.Is(err, io.EOF) {
		d.t.Fatalf("receipt %+v, %v; want the end", got, err)
	}
}

func (d *dialog) wasReset() {
	d.t.Helper()
	if got, err := d.line(); !errors.Is(err, syscall.ECONNRESET) {
		d.t.Fatalf("receipt %+v, %v; want a reset", got, err)
	}
}

func receiptOf(object []byte) wire.Receipt {
	return wire.Receipt{Digest: sha256.Sum256(object), Bytes: int64(len(object))}
}

// prefixed is objects as a sender of LengthPrefixed writes them.
func prefixed(objects ...[]byte) (b []byte) {
	for _, o := range objects {
		b = binary.BigEndian.AppendUint32(b, uint32(len(o)))
		b = append(b, o...)
	}
	return b
}

// framed is an entry with one listener over TCP.
func framed(name string, port int, framing string) wire.InstrumentEntry {
	e := tcpInstrument(name, port)
	e.Listeners[0].Framing = framing
	if framing == wire.FramingIdle {
		e.Listeners[0].IdleAfterMillis = 300
	}
	return e
}
