// SPDX-License-Identifier: Apache-2.0

package load

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/bench/internal/receiver"
)

// patience is how long nothing may happen before those that are held up are
// waited for no longer.
const patience = 5 * time.Second

// dialers bounds who connects at a time: the queue of a listener is short.
const dialers = 256

// hold opens all connections, sends all but the end over each, and only then ends.
func hold(o Order) Outcome {
	var out Outcome
	var mu sync.Mutex
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		out.Error = err.Error()
	}
	g := &gathering{want: int64(o.Senders), ended: make(chan struct{})}
	g.stir()
	go g.watch(o)
	whole := &body{}
	if o.Size > 0 {
		whole = newBody(o.Size)
	}
	var senders sync.WaitGroup
	slots := make(chan struct{}, dialers)
	for range o.Senders {
		senders.Go(func() {
			slots <- struct{}{}
			conn, err := net.Dial("tcp", o.Address)
			<-slots
			if err != nil {
				g.arrived.Add(1)
				fail(err)
				return
			}
			defer conn.Close()
			if err := heldObject(conn.(*net.TCPConn), o, whole, g); err != nil {
				fail(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out.Objects++
		})
	}
	senders.Wait()
	out.Open = g.open
	return out
}

// heldObject sends one object, its end when all are there.
func heldObject(conn *net.TCPConn, o Order, whole *body, g *gathering) error {
	if o.Size == 0 {
		g.arrive()
		<-g.ended
		return nil
	}
	own := *whole // the bytes before the number are everybody's
	own.data = own.data[: o.Size-numberSize : o.Size-numberSize]
	for sent := 0; sent < len(own.data); g.stir() {
		n, err := conn.Write(own.data[sent:min(len(own.data), sent+64<<10)])
		if err != nil {
			g.arrive()
			return err
		}
		sent += n
	}
	g.arrive()
	<-g.ended
	var end body
	end.data, end.prefix = make([]byte, numberSize), own.prefix
	end.next()
	if _, err := conn.Write(end.data); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	return check(o.Answer, string(said), end.digest, o.Size)
}

// gathering waits until all have arrived, or nothing happens any more.
type gathering struct {
	want    int64
	arrived atomic.Int64
	stirred atomic.Int64 // in nanoseconds since the Unix epoch
	ended   chan struct{}
	// open files of the receiver, when all are there; read after ended.
	open int
}

func (g *gathering) stir() { g.stirred.Store(time.Now().UnixNano()) }

func (g *gathering) arrive() {
	g.arrived.Add(1)
	g.stir()
}

func (g *gathering) watch(o Order) {
	g.wait(func() bool { return g.arrived.Load() >= g.want })
	if o.Process > 0 {
		g.stir()
		g.wait(func() bool {
			if n := receiver.OpenFiles(o.Process); n > g.open {
				g.open = n
				g.stir()
			}
			return g.open >= o.Senders
		})
	}
	time.Sleep(o.Duration)
	close(g.ended)
}

// wait returns once done is true, or nothing has stirred for too long.
func (g *gathering) wait(done func() bool) {
	for !done() && time.Since(time.Unix(0, g.stirred.Load())) < patience {
		time.Sleep(10 * time.Millisecond)
	}
}
