// SPDX-License-Identifier: Apache-2.0

// Package progress shows people how far a command is: on a terminal as a bar with the time
// that is left, elsewhere as lines. It draws the bar itself: libraries such as mpb redraw the
// lines above the cursor, also what a listing printed there to standard output meanwhile.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

const (
	// patience is how long nothing is shown on a terminal: most commands have ended by then.
	patience = 2 * time.Second
	// barEvery and lineEvery are how often the bar is drawn, and a line printed.
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 24
	// clearLine goes to the beginning of a terminal's line and empties it.
	clearLine = "\r\x1b[K"
)

// State is the progress of a command, in words and as Done of Total, in any unit. Total is 0 if it is unknown: then there is no bar, and
// no remaining time.
type State struct {
	Done, Total int64
	Text        string
}

// Progress shows a State that changes. Its methods may be called from several goroutines, and on nil.
type Progress struct {
	out      io.Writer
	terminal bool
	now      func() State
	end      chan struct{}
	ended    sync.WaitGroup
	once     sync.Once

	first State     // with this Total, at began
	began time.Time // both are of run

	mu    sync.Mutex // of state, and of what is written
	state State      // that was set
}

// Start shows on out what now returns, or without it what is Set, until Stop. With silent it shows nothing and returns nil.
func Start(out io.Writer, silent bool, now func() State) *Progress {
	if silent {
		return nil
	}
	p := &Progress{out: out, terminal: IsTerminal(out), now: now, end: make(chan struct{})}
	if now == nil {
		p.now = p.last
	}
	p.ended.Go(p.run)
	return p
}

// IsTerminal says whether people see what is written to out.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Set says how far the command is.
func (p *Progress) Set(done, total int64, format string, args ...any) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state = State{done, total, fmt.Sprintf(format, args...)}
	}
}

func (p *Progress) last() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Say prints a line, above the bar.
func (p *Progress) Say(format string, args ...any) {
	if p != nil {
		fmt.Fprintf(p.Above(p.out), format+"\n", args...)
	}
}

// Above returns a writer to out for whole lines, which stand above the bar where both are terminals.
func (p *Progress) Above(out io.Writer) io.Writer {
	if p == nil {
		return out
	}
	return above{p, out, p.terminal && IsTerminal(out)}
}

type above struct {
	*Progress
	out   io.Writer
	clear bool
}

// Write implements io.Writer.
func (a above) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clear {
		_, _ = io.WriteString(a.out, clearLine) // the next error says the same
	}
	return a.out.Write(text)
}

// Reader shows how much of r was read, of size bytes.
func (p *Progress) Reader(r io.Reader, size int64) io.Reader {
	return io.TeeReader(r, &counted{Progress: p, size: size})
}

type counted struct {
	*Progress
	read, size int64
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (int, error) {
	c.read += int64(len(b))
	c.Set(c.read, c.size, "%s of %s", humanize.IBytes(uint64(c.read)), humanize.IBytes(uint64(c.size)))
	return len(b), nil
}

// Stop ends the display. It may be called again.
func (p *Progress) Stop() {
	if p != nil {
		p.once.Do(func() { close(p.end) })
		p.ended.Wait()
	}
}

func (p *Progress) run() {
	wait, every := lineEvery, lineEvery
	if p.terminal {
		wait, every = patience, barEvery
		defer func() { _, _ = io.WriteString(p.Above(p.out), "") }()
	}
	for ; ; wait = every {
		select {
		case <-p.end:
			return
		case <-time.After(wait):
		}
		switch s := p.now(); {
		case s.Text == "":
		case p.terminal:
			_, _ = io.WriteString(p.Above(p.out), p.bar(s))
		default:
			p.Say("%s", p.text(s))
		}
	}
}

// text is the state in words, with the time that is left.
func (p *Progress) text(s State) string {
	if s.Total != p.first.Total || s.Done < p.first.Done {
		p.first, p.began = s, time.Now() // another stretch of work
	}
	done := s.Done - p.first.Done
	if done == 0 || s.Done > s.Total {
		return s.Text
	}
	left := time.Duration(float64(time.Since(p.began)) * float64(s.Total-s.Done) / float64(done))
	return fmt.Sprintf("%s; %v left", s.Text, left.Round(time.Second))
}

// bar is the state as a line of a terminal.
func (p *Progress) bar(s State) string {
	line := []rune(p.text(s))
	if s.Total > 0 {
		full := int(min(barWidth, barWidth*s.Done/s.Total))
		line = []rune(fmt.Sprintf("[%-*s] %s", barWidth, strings.Repeat("=", full), string(line)))
	}
	if width, _, err := term.GetSize(int(p.out.(*os.File).Fd())); err == nil && width > 0 {
		line = line[:min(len(line), width-1)]
	}
	return string(line)
}
