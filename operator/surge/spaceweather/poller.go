// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/surge"
)

const (
	// MinInterval is the least time between two questions. SWPC writes its fastest products once a minute.
	MinInterval = time.Second
	// longestPause bounds the pause after failures, unless the interval is longer. A storm's shock needs 15 minutes at least from L1 to
	// the Earth: a source that answers again is heard before it arrives.
	longestPause = 10 * time.Minute
)

// Config declares a poller.
type Config struct {
	// Name of the source, as the Site declares it.
	Name   string
	Source Source
	// Interval from one question to the next, to which up to a tenth is added at random, so that programs that started together do
	// not ask together.
	Interval time.Duration
	// StaleAfter is how old a newest sample may be; 0: four hours of Kp, 15 minutes of others.
	StaleAfter time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// State is the known state of a source.
type State struct {
	Source string
	// LastAsked and LastAnswered are zero before.
	LastAsked, LastAnswered time.Time
	// Error explains why the last question had no usable answer, and what to do; empty: it had one. While questions fail for the same
	// reason, it stays as it was the first time, with its times.
	Error string
	// FailingSince is when the first of the last questions without a usable answer failed; zero: the last one had one.
	FailingSince time.Time
	// Requests are how often it was asked, by result.
	Requests map[string]int
	// Refused is of the last answer that was read.
	Refused Refused
	// Spacecraft that measured the newest sample that names one.
	Spacecraft string
	// Newest sample of each quantity that has any.
	Newest map[surge.Quantity]surge.Sample
}

// Results of questions: those that were answered; those whose answer is that nothing changed; those to which the source said when to ask
// again; others without an answer that could be used.
const (
	resultAnswered  = "Answered"
	resultUnchanged = "Unchanged"
	resultPutOff    = "PutOff"
	resultFailed    = "Failed"
)

// Poller asks one source and keeps its answers.
type Poller struct {
	cfg Config

	mu       sync.Mutex
	state    State
	samples  map[surge.Quantity][]surge.Sample // each slice is replaced, never changed: signals share it
	failures int
}

// NewPoller returns a poller, which asks while Run runs.
func NewPoller(cfg Config) (*Poller, error) {
	if cfg.Name == "" || cfg.Source == nil {
		return nil, errors.New("a poller needs a source and its name")
	}
	if cfg.Interval < MinInterval {
		return nil, fmt.Errorf("source %s: interval %v is shorter than %v", cfg.Name, cfg.Interval, MinInterval)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	state := State{Source: cfg.Name, Requests: map[string]int{resultAnswered: 0, resultUnchanged: 0, resultPutOff: 0, resultFailed: 0}}
	return &Poller{cfg: cfg, state: state, samples: map[surge.Quantity][]surge.Sample{}}, nil
}

// Run asks until ctx ends, the first time at once.
func (p *Poller) Run(ctx context.Context) {
	for {
		wait := p.ask(ctx)
		if !retry.Sleep(ctx, wait) {
			return
		}
	}
}

// ask asks once, and says how long to wait until the next time.
func (p *Poller) ask(ctx context.Context) time.Duration {
	now := p.cfg.Now()
	p.mu.Lock()
	p.state.LastAsked = now
	p.mu.Unlock()
	answer, err := p.cfg.Source.Ask(ctx, now)
	if ctx.Err() != nil {
		return 0
	}
	p.take(answer, err)
	return p.pause(err)
}

// take keeps an answer.
func (p *Poller) take(answer Answer, err error) {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.state.Error
	if err != nil {
		p.failures++
		if p.failures == 1 {
			p.state.FailingSince = now
		}
		if is := errorText(p.cfg.Name, err); !sameError(was, is) {
			p.state.Error = is
			p.cfg.Log.Warn("cannot read a source of space weather", "source", p.cfg.Name, "error", is)
		}
		if answer.Refused.Samples > 0 {
			p.state.Refused = answer.Refused
		}
		p.state.Requests[failure(err)]++
		return
	}
	p.failures = 0
	p.state.Error, p.state.FailingSince, p.state.LastAnswered = "", time.Time{}, now
	if was != "" {
		p.cfg.Log.Info("a source of space weather is readable again", "source", p.cfg.Name)
	}
	if answer.Unchanged {
		p.state.Requests[resultUnchanged]++
	} else {
		p.state.Requests[resultAnswered]++
		if is := answer.Refused; is.Samples > 0 && p.state.Refused.Samples == 0 { // once, and not with each answer
			p.cfg.Log.Warn("samples of space weather were not taken", "source", p.cfg.Name, "samples", is.Samples, "first", wire.SaidText(is.First))
		}
		p.state.Refused = answer.Refused
	}
	for _, q := range p.cfg.Source.Quantities() {
		p.samples[q] = recent(merged(p.samples[q], answer.Samples[q]), now, kinds[q].kept)
	}
	p.describe()
}

// maxError bounds the text that a server can write into a status, by way of a header or of an answer that is not HTTP.
const maxError = 1000

// errorText is an error of a source as statuses and logs have it.
func errorText(source string, err error) string {
	text := wire.SaidText(fmt.Sprintf("source %s: %v", source, err))
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}

// varying are the parts of an error that differ each time that the same problem occurs: times, for how long to wait, addresses of a name
// that has several, the port that a connection was made from, counts.
var varying = regexp.MustCompile(`([0-9]+(\.[0-9]+)?(ms|µs|ns|h|m|s))+|[0-9a-fA-F:.]*[0-9][0-9a-fA-F:.]*`)

// sameError returns whether two errors of a source are about the same thing. A text that differs with each question would be a write of the
// Site's status and a line of the log each time. Answers of different HTTP statuses differ in their names.
func sameError(a, b string) bool {
	return varying.ReplaceAllString(a, "") == varying.ReplaceAllString(b, "")
}

// failure is the result that an error is counted as.
func failure(err error) string {
	if later := (*LaterError)(nil); errors.As(err, &later) {
		return resultPutOff
	}
	return resultFailed
}

// describe updates the state's description of the samples.
func (p *Poller) describe() {
	p.state.Newest = map[surge.Quantity]surge.Sample{}
	var of surge.Sample
	for _, q := range p.cfg.Source.Quantities() {
		samples := p.samples[q]
		if len(samples) == 0 {
			continue
		}
		newest := samples[len(samples)-1]
		p.state.Newest[q] = newest
		if newest.Spacecraft != "" && newest.From.After(of.From) {
			of = newest
		}
	}
	p.state.Spacecraft = of.Spacecraft
}

// pause is how long to wait: the interval, twice as long after each failure that follows another, and never less than the source said.
func (p *Poller) pause(err error) time.Duration {
	p.mu.Lock()
	failures := p.failures
	p.mu.Unlock()
	wait, bound := p.cfg.Interval, max(p.cfg.Interval, longestPause)
	for i := 1; i < failures && wait < bound; i++ {
		wait = min(2*wait, bound)
	}
	if later := (*LaterError)(nil); errors.As(err, &later) {
		wait = max(wait, later.After)
	}
	return wait + rand.N(wait/10+1)
}

// State returns the known state of the source.
func (p *Poller) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.state
	state.Newest, state.Requests = maps.Clone(state.Newest), maps.Clone(state.Requests)
	return state
}

// Signals are those of the source's quantities, in their order; one without samples knows nothing. The samples must not be changed.
func (p *Poller) Signals() surge.Signals {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all surge.Signals
	for _, q := range p.cfg.Source.Quantities() {
		stale := p.cfg.StaleAfter
		if stale == 0 {
			stale = kinds[q].stale
		}
		all = append(all, &surge.Signal{Quantity: q, Source: p.cfg.Name, Samples: p.samples[q], StaleAfter: stale})
	}
	return all
}
