// SPDX-License-Identifier: Apache-2.0

// Package progress shows what is being done and for how long: a line rewritten every second on a terminal, a line every fifteen seconds
// in a log, and one line when a step ends.
package progress

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// logInterval is short enough that no CI takes the silence for a hang, and long enough to keep its log readable.
const logInterval = 15 * time.Second

// maxLine keeps the rewritten line within one row of a common terminal.
const maxLine = 100

// Printer prints the steps of one command to one file. Its methods may be called from several goroutines, but steps
// do not overlap on a terminal: start the next one after the last has ended.
type Printer struct {
	out      *os.File
	terminal bool
	start    time.Time
	mu       sync.Mutex
}

// New returns a Printer that writes to out; elapsed times count from this call.
func New(out *os.File) *Printer {
	return &Printer{out: out, terminal: isTerminal(out), start: time.Now()}
}

// Line prints one line with the seconds since New in front.
func (p *Printer) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(fmt.Sprintf(format, args...))
}

func (p *Printer) line(text string) {
	clear := ""
	if p.terminal {
		clear = "\r\033[K"
	}
	fmt.Fprintf(p.out, "%s%6.1fs  %s\n", clear, time.Since(p.start).Seconds(), text)
}

// Step is one thing that takes a while.
type Step struct {
	p      *Printer
	what   string
	start  time.Time
	detail string
	done   chan struct{}
	once   sync.Once
}

// Step begins a step and keeps saying so until Done is called.
func (p *Printer) Step(format string, args ...any) *Step {
	s := &Step{p: p, what: fmt.Sprintf(format, args...), start: time.Now(), done: make(chan struct{})}
	go s.run()
	return s
}

// Detail replaces the few words behind the step's name that tell how far it is.
func (s *Step) Detail(format string, args ...any) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.detail = fmt.Sprintf(format, args...)
}

// Done ends the step and prints how it ended. Only the first call counts, so a deferred call is harmless.
func (s *Step) Done(err error) {
	s.once.Do(func() {
		s.p.mu.Lock()
		defer s.p.mu.Unlock()
		close(s.done)
		took := time.Since(s.start).Seconds()
		if err != nil {
			s.p.line(fmt.Sprintf("%s: failed after %.1f s", s.what, took))
			return
		}
		s.p.line(fmt.Sprintf("%s: done in %.1f s", s.what, took))
	})
}

func (s *Step) run() {
	every := logInterval
	if s.p.terminal {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.tick()
		}
	}
}

func (s *Step) tick() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	select {
	case <-s.done:
		return
	default:
	}
	text := fmt.Sprintf("%s, %.0f s", s.what, time.Since(s.start).Seconds())
	if s.detail != "" {
		text += ": " + s.detail
	}
	if !s.p.terminal {
		s.p.line(text)
		return
	}
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "")
	}
	fmt.Fprintf(s.p.out, "\r\033[K%6.1fs  %s", time.Since(s.p.start).Seconds(), text)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
}
