// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/bench/internal/process"
)

// environment tells a process to send requests.
const environment = "SUBSTORM_BENCH_HEADS"

// Main is called first of all by a benchmark's main: in the processes that ask by HEAD,
// or are Alone, it does not return.
func Main() {
	process.Work(environment, askHeads)
	process.Work(aloneEnvironment, serveAlone)
}

// heads are a Load's requests for a process that does nothing else.
type heads struct {
	Address     string
	Requests    [][]byte
	Status      int
	Connections int
	During      time.Duration

	first []byte // of each answer
}

type headsOutcome struct {
	Outcome
	Error string
}

// heads asks with one thread that waits for all connections at once, as wrk does.
func (l Load) heads(t testing.TB) (Outcome, error) {
	h := heads{Address: l.Base[len("http://"):], Status: l.Want, Connections: l.Connections, During: l.During}
	for i := range max(clients, len(l.Paths)) {
		text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nX-Forwarded-For: 198.18.%d.%d\r\n", l.Method, l.Paths[i%len(l.Paths)], h.Address, Agent, i/250, i%250+1)
		for name, value := range l.Header {
			text += name + ": " + value + "\r\n"
		}
		h.Requests = append(h.Requests, []byte(text+"\r\n"))
	}
	got, err := process.StartWorker[heads, headsOutcome](t, environment, l.Cores).Do(h)
	if err == nil && got.Error != "" {
		err = fmt.Errorf("%s %s: %s", l.Method, l.Base, got.Error)
	}
	return got.Outcome, err
}

func askHeads(h heads) (out headsOutcome) {
	if err := h.ask(&out.Outcome); err != nil {
		out.Error = err.Error()
	}
	return out
}

// asking is one connection.
type asking struct {
	fd   int
	seen []byte
}

func (h heads) ask(o *Outcome) error {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	next := 0
	h.first = fmt.Appendf(nil, "HTTP/1.1 %d ", h.Status)
	all := map[int32]*asking{}
	for range h.Connections {
		file, err := dial(h.Address)
		if err != nil {
			return err
		}
		defer file.Close()
		a := &asking{fd: int(file.Fd())} // which makes it one that blocks: what is written is small
		all[int32(a.fd)] = a
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, a.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(a.fd)}); err != nil {
			return err
		}
		if err := h.write(a, &next); err != nil {
			return err
		}
	}
	begin := time.Now()
	events, buffer := make([]unix.EpollEvent, h.Connections), make([]byte, 64<<10)
	for time.Since(begin) < h.During {
		n, err := unix.EpollWait(poll, events, int(h.During/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return err
		}
		for i := range max(n, 0) {
			if err := h.read(all[events[i].Fd], buffer, o, &next); err != nil {
				return err
			}
		}
	}
	o.Micros = time.Since(begin).Microseconds()
	return nil
}

func dial(address string) (*os.File, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*net.TCPConn).File()
}

func (h heads) write(a *asking, next *int) error {
	request := h.Requests[*next%len(h.Requests)]
	*next++
	n, err := unix.Write(a.fd, request)
	if err == nil && n < len(request) {
		err = fmt.Errorf("a request was not taken whole")
	}
	return err
}

// read reads what came, and asks again where an answer's head is whole.
func (h heads) read(a *asking, buffer []byte, o *Outcome, next *int) error {
	n, err := unix.Read(a.fd, buffer)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("the server closed a connection after %d answers", o.Requests)
	}
	o.Bytes += int64(n)
	a.seen = append(a.seen, buffer[:n]...)
	if !bytes.HasSuffix(a.seen, []byte("\r\n\r\n")) {
		return nil
	}
	if !bytes.HasPrefix(a.seen, h.first) {
		return fmt.Errorf("an answer begins with %.40q", a.seen)
	}
	o.Requests++
	a.seen = a.seen[:0]
	return h.write(a, next)
}
