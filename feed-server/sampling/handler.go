// SPDX-License-Identifier: Apache-2.0

// Package sampling is the endpoint at which consumers request a rate of observations, of
// Instruments that permit it. A request lapses after wire.RequestTTL unless it is renewed; gateways
// follow the requests and command the instruments.
package sampling

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/sampling"
	"github.com/substorm/substorm/internal/wire"
)

const (
	maxBody = 4 << 10
	// maxKey is more than three names have: a subject that is longer than NATS takes
	// would cost the connection.
	maxKey     = 256
	putTimeout = 5 * time.Second
	// retryAfter is when to come back where JetStream is away, in seconds.
	retryAfter = 5
)

// Config says whose instruments.
type Config struct {
	Site      string
	JetStream jetstream.JetStream
	// Instrument returns the registry's entry.
	Instrument func(name string) (wire.InstrumentEntry, bool)
	Logger     *slog.Logger
	Metrics    prometheus.Registerer
}

// Handler takes what consumers ask for.
type Handler struct {
	cfg   Config
	asked *prometheus.CounterVec
}

// result is what became of a request, as metrics say it.
type result string

const (
	resultAsked             result = "Asked"
	resultCancelled         result = "Cancelled"
	resultBadRequest        result = "BadRequest"
	resultUnknownInstrument result = "UnknownInstrument"
	resultUnknownChannel    result = "UnknownChannel"
	resultDenied            result = "Denied"
	resultPaused            result = "Paused"
	resultTooOften          result = "TooOften"
	resultUnavailable       result = "Unavailable"
)

// New returns a handler.
func New(cfg Config) *Handler {
	return &Handler{cfg: cfg, asked: metric.Counters(cfg.Metrics, "substorm_feed_sampling_requests_total",
		"Rates that consumers asked for, renewals included, by what became of it.", "result")}
}

// Request is the body of a POST.
type Request struct {
	Instrument string `json:"instrument"`
	// Channel is empty for all that spec.sampling does not name.
	Channel string `json:"channel,omitempty"`
	// Interval between observations, as Go writes durations: 200ms.
	Interval string `json:"interval"`
}

// Answer is what a POST is answered with.
type Answer struct {
	Request
	// ExpiresAt is when it lapses, unless it is asked for again.
	ExpiresAt time.Time `json:"expiresAt"`
}

// refusal is why nothing is done.
type refusal struct {
	*problem.Problem
	result result
}

// Error implements error.
func (r refusal) Error() string { return r.Detail }

func refuse(status int, r result, format string, args ...any) refusal {
	return refusal{problem.New(status, format, args...), r}
}

// Serve answers a consumer that was identified: POST asks for a rate, changes it or
// renews it; DELETE, with instrument and channel in the query, cancels it.
// Selects says whether the consumer may have an instrument's data.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, consumer string, selects func(instrument string) bool) {
	w.Header().Set("Cache-Control", "no-store")
	answer, err := h.take(r, consumer, selects)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		h.refuse(w, refused)
	case err != nil:
		h.cfg.Logger.Warn("cannot store the request of a consumer", "consumer", consumer, "error", err)
		again := refuse(http.StatusServiceUnavailable, resultUnavailable, "requests cannot be stored now: try again")
		again.After(retryAfter)
		h.refuse(w, again)
	case answer == nil:
		h.asked.WithLabelValues(string(resultCancelled)).Inc()
		w.WriteHeader(http.StatusNoContent)
	default:
		h.asked.WithLabelValues(string(resultAsked)).Inc()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func (h *Handler) refuse(w http.ResponseWriter, r refusal) {
	h.asked.WithLabelValues(string(r.result)).Inc()
	r.Write(w)
}

// take does what is asked for. Errors: refusal, JetStream's.
func (h *Handler) take(r *http.Request, consumer string, selects func(string) bool) (*Answer, error) {
	switch r.Method {
	case http.MethodPost:
		return h.ask(r, consumer, selects)
	case http.MethodDelete:
		q := r.URL.Query()
		return nil, h.cancel(r.Context(), consumer, q.Get("instrument"), q.Get("channel"), selects)
	default:
		return nil, refuse(http.StatusMethodNotAllowed, resultBadRequest, "POST asks for a rate, DELETE cancels it")
	}
}

func (h *Handler) ask(r *http.Request, consumer string, selects func(string) bool) (*Answer, error) {
	var asked Request
	body := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(&asked); err != nil {
		return nil, refuse(http.StatusBadRequest, resultBadRequest, `the body is no {"instrument": "mag-1", "channel": "raw", "interval": "200ms"}: %v`, err)
	}
	interval, err := time.ParseDuration(asked.Interval)
	if err != nil || interval < time.Millisecond || interval > wire.MaxSamplingInterval {
		return nil, refuse(http.StatusBadRequest, resultBadRequest, "interval %q is not a duration from 1ms to %v, such as 200ms", asked.Interval, wire.MaxSamplingInterval)
	}
	if err := h.judge(consumer, asked.Instrument, asked.Channel, interval, selects); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), putTimeout)
	defer cancel()
	kv, err := h.cfg.JetStream.KeyValue(ctx, wire.RequestBucket(h.cfg.Site))
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	record, err := wire.Encode(wire.SamplingRequest{Instrument: asked.Instrument, Channel: asked.Channel, Consumer: consumer,
		IntervalMillis: interval.Milliseconds(), At: now})
	if err != nil {
		return nil, err
	}
	if _, err := kv.Put(ctx, wire.SamplingRequestKey(asked.Instrument, asked.Channel, consumer), record); err != nil {
		return nil, err
	}
	return &Answer{asked, now.Add(wire.RequestTTL)}, nil
}

// judge says why a consumer may not ask for this, nil where it may.
func (h *Handler) judge(consumer, instrument, channel string, interval time.Duration, selects func(string) bool) error {
	entry, known := h.cfg.Instrument(instrument)
	if !known || !selects(instrument) {
		return refuse(http.StatusNotFound, resultUnknownInstrument, "FeedConsumer %s selects no Instrument %q", consumer, instrument)
	}
	err := sampling.Allowed(entry, channel, interval)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sampling.ErrUnknownChannel):
		return refuse(http.StatusNotFound, resultUnknownChannel, "channel %q: %v", channel, err)
	case errors.Is(err, sampling.ErrPaused):
		return refuse(http.StatusForbidden, resultPaused, "%v", err)
	case errors.Is(err, sampling.ErrTooOften):
		return refuse(http.StatusForbidden, resultTooOften, "%v", err)
	default:
		return refuse(http.StatusForbidden, resultDenied, "%v", err)
	}
}

// cancel: what is not allowed any more may be cancelled too, where it stands. Nothing
// is written of what can never have been asked for.
func (h *Handler) cancel(ctx context.Context, consumer, instrument, channel string, selects func(string) bool) error {
	unnamed := refuse(http.StatusBadRequest, resultBadRequest, "name what is cancelled: ?instrument=mag-1&channel=raw")
	key := wire.SamplingRequestKey(instrument, channel, consumer)
	if i, c, _, ok := wire.ParseSamplingRequestKey(key); !ok || i != instrument || c != channel || len(key) > maxKey {
		return unnamed
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	kv, err := h.cfg.JetStream.KeyValue(ctx, wire.RequestBucket(h.cfg.Site))
	if err != nil {
		return err
	}
	if why := h.judge(consumer, instrument, channel, wire.MaxSamplingInterval, selects); why != nil {
		if _, err = kv.Get(ctx, key); errors.Is(err, jetstream.ErrKeyNotFound) {
			return why
		}
	}
	if err == nil {
		err = kv.Delete(ctx, key)
	}
	if errors.Is(err, jetstream.ErrInvalidKey) {
		return unnamed
	}
	return err
}
