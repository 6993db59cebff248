// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// unheard is a socket whose packets are not answered, and whose wait a bubble of fake time can observe.
type unheard struct {
	net.Conn
	writes *atomic.Int64
	closed chan struct{}
}

func (u unheard) Write(b []byte) (int, error) { u.writes.Add(1); return len(b), nil }
func (u unheard) Read([]byte) (int, error)    { <-u.closed; return 0, net.ErrClosed }
func (u unheard) Close() error                { close(u.closed); return nil }

// Packets that a spent budget keeps back are neither sent nor lost, and no silence
// of the path; those that leave and get no answer are all three.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name string
		// spent is when the budget is, of a period of 120 packets.
		spent               func(n int64) bool
		sent, silent, dials int64
	}{
		{name: "none left", spent: func(int64) bool { return true }, dials: 1},
		{name: "one in four", spent: func(n int64) bool { return n%4 != 0 }, sent: 30, dials: 1},
		// After a minute of packets a new socket is opened; packets count for the time between, 5 s.
		{name: "no bound", spent: func(int64) bool { return false }, sent: 120, silent: 1, dials: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked, writes, dials, silent atomic.Int64
				s := NewSession(SessionConfig{
					Address: "192.0.2.1:862", Interval: time.Second,
					May: func(int) bool { return !c.spent(asked.Add(1) - 1) },
					Trouble: func(err error) {
						if err != nil {
							silent.Add(1)
						}
					},
				})
				s.dial = func(context.Context) (net.Conn, error) {
					dials.Add(1)
					return unheard{writes: &writes, closed: make(chan struct{})}, nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute-time.Millisecond)
				defer cancel()
				s.Run(ctx)
				time.Sleep(Patience) // of the bubble: what has no answer by then never gets one
				got := s.Report(time.Now())
				if int64(got.Sent) != c.sent || got.Answered != 0 || silent.Load() != c.silent || dials.Load() != c.dials {
					t.Errorf("%+v, %d left, %d sockets, %d times in trouble; want %+v", got, writes.Load(), dials.Load(), silent.Load(), c)
				}
			})
		})
	}
}
