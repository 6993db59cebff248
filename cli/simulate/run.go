// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/sender"
)

// Config is what to simulate, where to and for how long.
type Config struct {
	Model Model
	// Seed decides all that is drawn.
	Seed uint64
	// Duration of the plan. Objects that are due by then are sent completely.
	Duration time.Duration
	// Rate of the whole model in objects a second; 0 leaves it as it is.
	Rate float64
	// Senders are how many connections, and UDP sockets, are used at a time.
	Senders int
	// To are servers: [SOURCE=]HOST:PORT[,...]. Those without a source are for
	// all that have none of their own.
	To []string

	// ReceiptTimeout and GiveUpAfter are as in sender.Config.
	ReceiptTimeout, GiveUpAfter time.Duration

	// Messages get progress and troubles; nil is silent.
	Messages io.Writer
}

// Run sends what the model plans and returns what became of it. The report is
// complete even where the error says that something has no receipt, or that
// ctx ended (then it wraps context.Canceled).
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r, err := newRun(cfg)
	if err != nil {
		return nil, err
	}
	defer r.close()
	r.begin = time.Now()
	shown := progress.Start(r.cfg.Messages, cfg.Messages == nil, func() progress.State {
		return progress.State{Done: int64(time.Since(r.begin)), Total: int64(cfg.Duration), Text: r.tally.line()}
	})
	var sending sync.WaitGroup
	sending.Go(func() { r.objects(ctx) })
	sending.Go(func() { r.datagrams(ctx) })
	sending.Wait()
	took := time.Since(r.begin)
	shown.Stop()
	report := r.tally.report(&r.cfg, took)
	if ctx.Err() != nil {
		return report, fmt.Errorf("interrupted after %v: %w", took.Round(time.Millisecond), context.Canceled)
	}
	return report, report.failure(r.tally.examples)
}

// run is one run.
type run struct {
	cfg      Config
	payloads *payloads
	clients  []*sender.Client // by source; nil for UDP
	sockets  [][]*socket      // by source; nil for TCP
	tally    *tally
	begin    time.Time
}

func newRun(cfg Config) (*run, error) {
	if err := cfg.Model.check(); err != nil {
		return nil, err
	}
	if cfg.Rate > 0 {
		cfg.Model.scale(cfg.Rate)
	}
	r := &run{cfg: cfg, payloads: newPayloads(cfg.Seed), tally: newTally(cfg.Model)}
	addresses, err := targets(cfg.Model, cfg.To)
	if err != nil {
		return nil, err
	}
	for i, s := range cfg.Model.Sources {
		var client *sender.Client
		var sockets []*socket
		if s.Protocol == UDP {
			sockets, err = dial(addresses[i], cfg.Senders)
		} else {
			client, err = sender.NewClient(sender.ClientConfig{
				Addresses: addresses[i], ReceiptTimeout: cfg.ReceiptTimeout, GiveUpAfter: cfg.GiveUpAfter,
			})
		}
		if err != nil {
			r.close()
			return nil, fmt.Errorf("source %s: %w", s.Name, err)
		}
		r.clients, r.sockets = append(r.clients, client), append(r.sockets, sockets)
	}
	return r, nil
}

func (r *run) close() {
	for _, sockets := range r.sockets {
		for _, s := range sockets {
			s.conn.Close()
		}
	}
}

// targets returns the addresses of each source.
func targets(m Model, to []string) ([][]string, error) {
	own, rest := map[string][]string{}, []string(nil)
	for _, spec := range to {
		name, list, named := strings.Cut(spec, "=")
		if !named {
			name, list = "", spec
		}
		addresses, err := sender.ParseAddresses([]string{list})
		if err != nil {
			return nil, err
		}
		if named {
			own[name] = append(own[name], addresses...)
		} else {
			rest = append(rest, addresses...)
		}
	}
	var all [][]string
	for _, s := range m.Sources {
		addresses := rest
		if own[s.Name] != nil {
			addresses = own[s.Name]
			delete(own, s.Name)
		}
		if len(addresses) == 0 {
			return nil, fmt.Errorf("nowhere to send %s to: --to HOST:PORT, or --to %s=HOST:PORT for it alone", s.Name, s.Name)
		}
		all = append(all, addresses)
	}
	for name := range own {
		return nil, fmt.Errorf("--to %s=: model %s has no such source", name, m.Name)
	}
	return all, nil
}

// due yields what the plan has for a protocol at the time when it is due, until ctx ends.
func (r *run) due(ctx context.Context, p Protocol, send func(event) bool) {
	m := r.cfg.Model
	if !m.uses(p) {
		return
	}
	for e := range plan(m, r.cfg.Seed, r.cfg.Duration) {
		if m.Sources[e.source].Protocol != p {
			continue
		}
		if !m.paced() && time.Since(r.begin) >= r.cfg.Duration || !r.until(ctx, e.at) || !send(e) {
			return
		}
	}
}

// until waits and returns false where ctx ends first.
func (r *run) until(ctx context.Context, at time.Duration) bool {
	wait := at - time.Since(r.begin)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// objects sends over TCP.
func (r *run) objects(ctx context.Context) {
	work := make(chan event)
	var senders sync.WaitGroup
	for range r.cfg.Senders {
		senders.Go(func() {
			for e := range work {
				r.object(ctx, e)
			}
		})
	}
	r.due(ctx, TCP, func(e event) bool {
		select {
		case work <- e:
			return true
		case <-ctx.Done():
			return false
		}
	})
	close(work)
	senders.Wait()
}

func (r *run) object(ctx context.Context, e event) {
	began := time.Now()
	result := r.clients[e.source].Send(ctx, sender.Object{
		Name: fmt.Sprintf("%s-%d/%d", r.cfg.Model.Sources[e.source].Name, e.instrument, e.number),
		Open: func() (io.ReadCloser, error) { return r.payloads.open(e), nil },
	})
	if result.Outcome != sender.Received && errors.Is(ctx.Err(), context.Canceled) {
		result.Error = "interrupted"
	}
	if result.ReceiptedAt != nil {
		now := time.Now()
		due := began
		if r.cfg.Model.paced() {
			due = r.begin.Add(e.at)
		}
		r.tally.received(now.Sub(due), now.Sub(began))
	}
	r.tally.add(e.source, result)
}
