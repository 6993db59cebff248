// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/retry"
)

// Program runs a program of ours until ctx ends, with the arguments of its command line.
type Program func(ctx context.Context, arguments []string) error

const (
	// A program that ends is started again after leastBackOff, and after twice as long each time, up to maxBackOff; for one that ran for
	// longer than that the wait is reset.
	leastBackOff = time.Second
	maxBackOff   = time.Minute
	// probeEvery is how often a pod is asked whether it is ready, and probeTimeout how long it may take.
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second
	// firstProbes is how often one is asked that was never ready.
	firstProbes = 50 * time.Millisecond
)

// process is a program that runs, and is started again when it ends.
type process struct {
	pod      *pod
	program  Program
	override func(Started) []string
	log      *slog.Logger
	changed  func() // called when state changes
	// silence is how long it may answer nothing; 0: it is no process of its own, and is not ended.
	silence time.Duration

	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	state state
	// files guards pod.files, and what is mounted.
	files sync.Mutex
}

// state is what is known of a process.
type state struct {
	ready    bool
	since    time.Time // ready or not, since when
	started  time.Time
	restarts int32
	failed   string // why it ended last
	ended    bool   // it ran once, and is not started again
	health   string // where /healthz, /readyz and /metrics are; empty while it does not run
}

func (p *process) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.done = make(chan struct{})
	p.state.since = time.Now()
	go func() {
		defer close(p.done)
		p.run(ctx)
	}()
}

// currentState returns what is known now.
func (p *process) currentState() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// note changes what is known.
func (p *process) note(change func(*state)) {
	p.mu.Lock()
	before := p.state
	change(&p.state)
	if p.state.ready != before.ready {
		p.state.since = time.Now()
	}
	differs := p.state != before
	p.mu.Unlock()
	if differs {
		p.changed()
	}
}

// run keeps the program running until ctx ends.
func (p *process) run(ctx context.Context) {
	for wait := leastBackOff; ; {
		began := time.Now()
		err := p.once(ctx)
		if ctx.Err() != nil {
			if err != nil {
				p.log.Warn("the program did not stop as it should", "pod", p.pod.name.Name, "error", err)
			}
			return
		}
		if p.pod.once {
			p.finish(err)
			return
		}
		if time.Since(began) > maxBackOff {
			wait = leastBackOff
		}
		p.log.Error("the program ended; restarting it", "pod", p.pod.name.Name, "program", p.pod.program, "error", err, "in", wait.String())
		p.note(func(s *state) { s.ready, s.failed, s.restarts, s.health = false, fmt.Sprint(err), s.restarts+1, "" })
		if !retry.Sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, maxBackOff)
	}
}

// once runs the program once. A panic in the goroutine that it is started on is an error of this pod alone; one in another goroutine of
// it ends the process, as it ends the container on a cluster.
func (p *process) once(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	health, err := freeAddress()
	if err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	p.note(func(s *state) { s.started, s.health = time.Now(), health })
	probing, stop := context.WithCancel(ctx)
	defer stop()
	go p.probe(probing, health)
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	if p.silence > 0 {
		go p.guard(probing, health, end)
	}
	arguments := append(append([]string{}, p.pod.arguments...), p.override(Started{p.pod.program, p.pod.name, health, p.pod.arguments})...)
	err = p.program(running, arguments)
	if silent := new(silentError); errors.As(context.Cause(running), &silent) {
		return silent
	}
	if err != nil {
		return err
	}
	if ctx.Err() == nil && !p.pod.once {
		return errors.New("it ended without an error")
	}
	return nil
}

// finish notes how a program ended that is not started again.
func (p *process) finish(err error) {
	failed := ""
	if err != nil {
		failed = err.Error()
		p.log.Error("the program failed", "pod", p.pod.name.Name, "program", p.pod.program, "error", err)
	}
	p.note(func(s *state) { s.ready, s.ended, s.failed, s.health = false, true, failed, "" })
}

// prepare makes the folders of the pod.
func (p *process) prepare() error {
	p.files.Lock()
	defer p.files.Unlock()
	return p.pod.prepare()
}

// mount changes what is mounted of Secrets.
func (p *process) mount(files map[string][]byte) error {
	p.files.Lock()
	defer p.files.Unlock()
	p.pod.files = files
	return p.pod.writeFiles()
}

// probe asks the pod whether it is ready.
func (p *process) probe(ctx context.Context, health string) {
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		resp, err := client.Get("http://" + health + "/readyz")
		ready := err == nil && resp.StatusCode == http.StatusOK
		if err == nil {
			_ = resp.Body.Close()
		}
		if ctx.Err() != nil {
			return
		}
		p.note(func(s *state) { s.ready = ready })
		wait := probeEvery
		if !ready {
			wait = firstProbes
		}
		if !retry.Sleep(ctx, wait) {
			return
		}
	}
}

// freeAddress is an address of this machine with a free port.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", Address+":0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
