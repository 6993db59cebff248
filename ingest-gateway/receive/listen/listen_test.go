// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// No more connections are accepted than there are slots; a port that is taken is reported, one that
// closes gives up and leaves its connections, and after Close nothing opens.
func TestPorts(t *testing.T) {
	slots := NewSlots(1, nil)
	held := make(chan *Slot, 2)
	accepted, ended := make(chan net.Conn, 2), make(chan error, 2)
	p := New(Config{Protocol: "TCP", Slots: slots, Abort: true, Logger: slog.New(slog.DiscardHandler)}, func(l *Listener) {
		for {
			c, slot, err := l.AcceptTCP(t.Context())
			if err != nil {
				ended <- err
				return
			}
			slot.Identified()
			held <- slot
			accepted <- c
		}
	})
	defer p.Close()
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port, other := uint16(testenv.FreePort(t)), uint16(taken.Addr().(*net.TCPAddr).Port)
	if failed := p.Set([]uint16{port, other}); len(failed) != 1 || failed[other] == nil {
		t.Fatalf("failed: %v", failed)
	}
	dial := func() net.Conn {
		c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	one := dial()
	first := <-accepted
	dial()
	if slots.free.TryAcquire(1) {
		t.Fatal("an accepted connection holds no slot")
	}
	select {
	case <-accepted:
		t.Fatal("two connections are accepted with one slot")
	default:
	}
	(<-held).Release()
	second := <-accepted
	(<-held).Release()

	if failed := p.Set(nil); len(failed) != 0 {
		t.Errorf("failed: %v", failed)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a port that closed gave %v", err)
	}
	if _, err := net.Dial("tcp", one.RemoteAddr().String()); err == nil {
		t.Error("the port still takes connections")
	}
	if _, err := first.Write([]byte("x")); err != nil {
		t.Errorf("a connection of a port that closed: %v", err)
	}
	if _, err := io.ReadFull(one, make([]byte, 1)); err != nil {
		t.Errorf("a connection of a port that closed: %v", err)
	}
	_ = first.Close()
	if _, err := one.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a connection that was closed ended with %v, not a reset", err)
	}
	_ = second.Close()
	p.Close()
	if failed := p.Set([]uint16{port}); failed != nil {
		t.Errorf("failed: %v", failed)
	}
	if _, err := net.Dial("tcp", one.RemoteAddr().String()); err == nil {
		t.Error("a port opened after Close")
	}
}
