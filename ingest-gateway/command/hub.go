// SPDX-License-Identifier: Apache-2.0

// Package command sends commands to senders in the field: what is asked of their instruments by the
// registry and, where that lets them, by consumers.
package command

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/sampling"
	"github.com/substorm/substorm/internal/wire"
)

// Config says whose commands.
type Config struct {
	Site     string
	Registry *intake.Registry
	Logger   *slog.Logger
	Metrics  prometheus.Registerer
	// Asked, where set, is called when something else is asked of an instrument
	// whose sender takes commands.
	Asked func(instrument string, channels []wire.ChannelSampling)
}

// Hub knows what is asked of each instrument, and which senders are to be notified.
type Hub struct {
	cfg Config

	mu sync.Mutex
	// told are the instruments with connected senders that take commands.
	told map[string]*told
	// requests that stand, by key.
	requests map[string]request
}

// told is an instrument with senders that are sent commands.
type told struct {
	channels []wire.ChannelSampling
	// line is the command; empty if there is none to give.
	line      string
	listeners map[*listener]struct{}
}

type listener struct{ tell func(line string) }

// New returns a hub that knows of no request yet.
func New(cfg Config) *Hub {
	h := &Hub{cfg: cfg, told: map[string]*told{}, requests: map[string]request{}}
	metric.GaugeFunc(cfg.Metrics, "substorm_gateway_sampling_requests_standing", "Rates that consumers ask for, and renew, of instruments of the Site.", func() float64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return float64(len(h.requests))
	})
	return h
}

// Join calls tell with the command that stands for an instrument, and then with
// each other one, until leave is called. Tell does not wait.
func (h *Hub) Join(instrument string, tell func(line string)) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.told[instrument]
	if t == nil {
		t = &told{listeners: map[*listener]struct{}{}}
		h.told[instrument] = t
	}
	l := &listener{tell}
	t.listeners[l] = struct{}{}
	if len(t.listeners) == 1 {
		h.plan(instrument, t)
	} else if t.line != "" {
		tell(t.line)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(t.listeners, l)
		if len(t.listeners) == 0 && h.told[instrument] == t {
			delete(h.told, instrument)
		}
	}
}

// Refresh looks at what is asked, after the registry changed.
func (h *Hub) Refresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for instrument, t := range h.told {
		h.plan(instrument, t)
	}
}

// plan finds what is asked of an instrument, and sends it the command if that changed. The caller
// holds mu.
func (h *Hub) plan(instrument string, t *told) {
	entry, known := h.cfg.Registry.Current().Entry(instrument)
	if !known {
		return // it is planned again once the registry has the instrument
	}
	channels := sampling.Asked(entry, h.of(instrument))
	if slices.Equal(channels, t.channels) {
		return
	}
	t.channels = channels
	command := wire.Sampling{Channels: slices.Clone(channels)}
	for i := range command.Channels {
		command.Channels[i].By = "" // no sender's business
	}
	line, err := command.Line()
	if err != nil { // never: it is bounded
		h.cfg.Logger.Error("cannot encode a sampling command", "instrument", instrument, "error", err)
		return
	}
	h.cfg.Logger.Info("sampling", "instrument", instrument, "asked", channels)
	if h.cfg.Asked != nil {
		h.cfg.Asked(instrument, channels)
	}
	if line == t.line {
		return
	}
	t.line = line
	for l := range t.listeners {
		l.tell(line)
	}
}

// of are the requests for an instrument.
func (h *Hub) of(instrument string) []wire.SamplingRequest {
	var all []wire.SamplingRequest
	for _, r := range h.requests {
		if r.Instrument == instrument {
			all = append(all, r.SamplingRequest)
		}
	}
	return all
}
