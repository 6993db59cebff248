// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// progress shows how far we are.
type progress interface {
	// say shows a line of text.
	say(text string)
	// stop ends the display.
	stop()
}

// progressInterval is how often a line is printed where there is no terminal.
const progressInterval = 5 * time.Second

func newProgress(out io.Writer, quiet bool, t *tally) progress {
	if quiet {
		return silent{}
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return newBar(out, t)
	}
	return newTicker(out, t)
}

type silent struct{}

func (silent) say(string) {}
func (silent) stop()      {}

// bar is a progress bar on a terminal.
type bar struct {
	container *mpb.Progress
	bar       *mpb.Bar
	tally     *tally
	done      chan struct{}
	stopped   sync.WaitGroup
}

func newBar(out io.Writer, t *tally) *bar {
	container := mpb.New(mpb.WithOutput(out), mpb.WithWidth(30))
	text := decor.Any(func(decor.Statistics) string { return " " + t.String() })
	b := &bar{container: container, tally: t, done: make(chan struct{}), bar: container.AddBar(0, mpb.AppendDecorators(text))}
	b.stopped.Go(b.run)
	return b
}

func (b *bar) run() {
	ticks := time.NewTicker(150 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-b.done:
			return
		case <-ticks.C:
			b.bar.SetTotal(max(b.tally.knownBytes.Load(), b.tally.useful.Load()+1), false)
			b.bar.SetCurrent(b.tally.useful.Load())
		}
	}
}

func (b *bar) say(text string) { fmt.Fprintln(b.container, text) }

func (b *bar) stop() {
	close(b.done)
	b.stopped.Wait()
	b.bar.Abort(true)
	b.container.Wait()
}

// ticker prints a line every few seconds.
type ticker struct {
	mu      sync.Mutex
	out     io.Writer
	tally   *tally
	done    chan struct{}
	stopped sync.WaitGroup
}

func newTicker(out io.Writer, t *tally) *ticker {
	p := &ticker{out: out, tally: t, done: make(chan struct{})}
	p.stopped.Go(p.run)
	return p
}

func (p *ticker) run() {
	ticks := time.NewTicker(progressInterval)
	defer ticks.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-ticks.C:
			p.say(p.tally.String())
		}
	}
}

func (p *ticker) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, text)
}

func (p *ticker) stop() {
	close(p.done)
	p.stopped.Wait()
}

// troubles says each trouble once in a while, however often it comes.
type troubles struct {
	mu       sync.Mutex
	progress progress
	said     map[string]time.Time
}

const troubleInterval = 30 * time.Second

// say shows text unless a text of the same kind was shown lately.
func (t *troubles) say(kind, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.said[kind]; ok && time.Since(last) < troubleInterval {
		return
	}
	if t.said == nil || len(t.said) > 1000 {
		t.said = map[string]time.Time{}
	}
	t.said[kind] = time.Now()
	t.progress.say(text)
}
