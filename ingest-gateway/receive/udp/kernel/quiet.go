// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

const (
	// turnBatches is how many batches of one port the quiet reader reads before it turns to the next.
	turnBatches = 4
	// maxEvents is how many ports one call may name.
	maxEvents = 128
)

// quiet reads the ports to which little comes: one goroutine with one batch for all of them, however many there
// are. A port that fills a batch gets a reader of its own, as long as there are readers.
type quiet struct {
	epoll, wake int
	batch       *batch
	sink        udp.Sink
	readers     *readers

	mu      sync.Mutex
	sockets map[int32]*socket // by fd

	done chan struct{}
}

// newQuiet returns a reader of no ports; run makes it read.
func newQuiet(sink udp.Sink, r *readers) (*quiet, error) {
	b, err := newBatch()
	if err != nil {
		return nil, err
	}
	q := &quiet{epoll: -1, wake: -1, batch: b, sink: sink, readers: r, sockets: map[int32]*socket{}, done: make(chan struct{})}
	if q.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		q.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = q.watch(q.wake)
	}
	if err != nil {
		q.free()
		return nil, fmt.Errorf("UDP: epoll: %w", err)
	}
	return q, nil
}

func (q *quiet) watch(fd int) error {
	return unix.EpollCtl(q.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// add has a socket read, whose mutex is held or that is not known elsewhere yet.
func (q *quiet) add(s *socket) error {
	q.mu.Lock()
	q.sockets[int32(s.fd)] = s
	q.mu.Unlock()
	if err := q.watch(s.fd); err != nil {
		return fmt.Errorf("UDP port %d: epoll: %w", s.port, err)
	}
	return nil
}

// remove has a socket read no more, whose mutex is held.
func (q *quiet) remove(s *socket) {
	_ = unix.EpollCtl(q.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
	q.mu.Lock()
	delete(q.sockets, int32(s.fd))
	q.mu.Unlock()
}

// run reads until close.
func (q *quiet) run() {
	defer close(q.done)
	var events [maxEvents]unix.EpollEvent
	checked := time.Now()
	for {
		n, err := unix.EpollWait(q.epoll, events[:], int(idleCheck.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) { // the machine lacks memory
			time.Sleep(errorPause)
		}
		begun := time.Now()
		pause := maxPause
		read := false
		for _, e := range events[:max(n, 0)] {
			if e.Fd == int32(q.wake) {
				return
			}
			q.mu.Lock()
			s := q.sockets[e.Fd]
			q.mu.Unlock()
			if s != nil && q.read(s) {
				read, pause = true, min(pause, s.pause)
			}
		}
		if begun.Sub(checked) >= idleCheck {
			q.countDrops()
			checked = begun
		}
		// More may come soon, for any of the ports.
		if rest := pause - time.Since(begun); read && rest > 0 {
			time.Sleep(rest)
		}
	}
}

// read reads a socket once, or for a turn where much has come; then it gives it to a reader of its own, if there is
// one. It says whether anything came.
func (q *quiet) read(s *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() || s.busy != nil {
		return false
	}
	q.batch.port = s.port
	for i := range turnBatches {
		n, errno := q.batch.receive(uintptr(s.fd))
		if errno == unix.EAGAIN {
			return i > 0
		}
		if errno != 0 {
			time.Sleep(errorPause)
			return i > 0
		}
		s.handOver(q.batch, n)
		if n < batchSize {
			return true
		}
		if b := q.readers.take(); b != nil {
			q.remove(s)
			s.begin(b)
			return true
		}
	}
	return true
}

// countDrops asks for each port what the kernel dropped: the kernel itself reports it only with the next
// datagram.
func (q *quiet) countDrops() {
	q.mu.Lock()
	all := make([]*socket, 0, len(q.sockets))
	for _, s := range q.sockets {
		all = append(all, s)
	}
	q.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		if !s.closing.Load() && s.busy == nil {
			s.countDrops()
		}
		s.mu.Unlock()
	}
}

// close ends run, and releases everything. The sockets are closed by then.
func (q *quiet) close() {
	_, _ = unix.Write(q.wake, one)
	<-q.done
	q.free()
}

func (q *quiet) free() {
	q.batch.free()
	for _, fd := range []int{q.epoll, q.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// one is what is written to an eventfd.
var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// readers are those that busy ports may have for themselves, each with a batch.
type readers struct{ tokens chan struct{} }

func newReaders(n int) *readers { return &readers{tokens: make(chan struct{}, n)} }

// take returns the batch of one more reader, nil if there are as many as may be or memory is short.
func (r *readers) take() *batch {
	select {
	case r.tokens <- struct{}{}:
	default:
		return nil
	}
	b, err := newBatch()
	if err != nil {
		<-r.tokens
		return nil
	}
	return b
}

func (r *readers) give(b *batch) {
	b.free()
	<-r.tokens
}
