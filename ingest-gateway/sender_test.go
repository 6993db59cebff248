// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// answer is what a sender saw.
type answer struct {
	line string
	err  error // of reading; nil where the other side closed cleanly
}

func (a answer) receipt(t *testing.T) wire.Receipt {
	t.Helper()
	if a.err != nil {
		t.Fatalf("no receipt: %q, %v", a.line, a.err)
	}
	r, err := wire.ParseReceipt(a.line)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dial connects to a port, which may only just be opening.
func dial(t *testing.T, port int) *net.TCPConn {
	t.Helper()
	var conn net.Conn
	await(t, fmt.Sprintf("port %d accepts", port), func() (bool, string) {
		var err error
		conn, err = net.Dial("tcp", loopback(port))
		return err == nil, fmt.Sprint(err)
	})
	return conn.(*net.TCPConn)
}

// hear reads what the gateway says until the connection ends.
func hear(conn net.Conn) answer {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(conn)
	return answer{string(b), err}
}

// send sends an object and reads the answer.
func send(t *testing.T, port int, object []byte) answer {
	t.Helper()
	conn := dial(t, port)
	defer conn.Close()
	if _, err := conn.Write(object); err != nil {
		return answer{err: err}
	}
	if err := conn.CloseWrite(); err != nil {
		return answer{err: err}
	}
	return hear(conn)
}

// isReset says whether an error means that a connection was reset; a sender that is about to close
// its side at that moment sees that it is not connected.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// mustSend sends an object and fails without its receipt.
func mustSend(t *testing.T, port int, object []byte) {
	t.Helper()
	want := wire.Receipt{Digest: sha256.Sum256(object), Bytes: int64(len(object))}
	if got := send(t, port, object).receipt(t); got != want {
		t.Fatalf("receipt %+v, want %+v", got, want)
	}
}

// random returns n bytes that depend on seed alone.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
