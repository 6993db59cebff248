// SPDX-License-Identifier: Apache-2.0

// Package damage reports objects to the Site's archivist that could not be served, because their
// bytes in the store are not those that were received. The archivist checks them itself, and writes
// confirmed damage to the ledger.
package damage

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// queue is how many objects wait to be reported; more are counted and left to the scrub, which
	// visits every object.
	queue = 64
	// again is how long the same object is not reported again.
	again = time.Hour
	// remembered bounds how many reported objects are remembered.
	remembered  = 4096
	callTimeout = 5 * time.Second
)

// Config is the configuration of a Teller.
type Config struct {
	Site, Pod string
	JetStream jetstream.JetStream
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
}

// Teller reports damaged objects; Run does the work.
type Teller struct {
	cfg   Config
	queue chan wire.Damage
	told  map[string]time.Time
	count *prometheus.CounterVec
}

// New returns a teller.
func New(cfg Config) *Teller {
	return &Teller{cfg: cfg, queue: make(chan wire.Damage, queue), told: map[string]time.Time{},
		count: metric.Counters(cfg.Metrics, "substorm_archive_damage_told_total",
			"Damaged objects of which the archivist was told, or was not and why.", "result")}
}

// Tell queues an object to be reported. It never blocks.
func (t *Teller) Tell(instrument string, r wire.Record, missing bool) {
	cause := wire.DamageDamaged
	if missing {
		cause = wire.DamageMissing
	}
	select {
	case t.queue <- wire.DamageOf(instrument, r, cause, t.cfg.Pod, time.Now()):
	default:
		t.count.WithLabelValues("Overflow").Inc()
	}
}

// Run reports objects until ctx ends.
func (t *Teller) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-t.queue:
			t.tell(ctx, d)
		}
	}
}

func (t *Teller) tell(ctx context.Context, d wire.Damage) {
	key := wire.DamageKey(d.Instrument, d.ID)
	if at, told := t.told[key]; told && time.Since(at) < again {
		return
	}
	if len(t.told) >= remembered {
		clear(t.told)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result, err := t.create(ctx, key, d)
	t.count.WithLabelValues(result).Inc()
	if err != nil {
		t.cfg.Logger.Warn("cannot report a damaged object to the archivist; its scrub will find the object", "instrument", d.Instrument, "object", d.ID, "error", err)
		return
	}
	t.told[key] = time.Now()
}

// create reports that an object is damaged, unless it is reported already.
func (t *Teller) create(ctx context.Context, key string, d wire.Damage) (result string, err error) {
	value, err := wire.Encode(d)
	if err != nil {
		return "Failed", err
	}
	kv, err := t.cfg.JetStream.KeyValue(ctx, wire.StatusBucket(t.cfg.Site))
	if err != nil {
		return "Failed", err
	}
	_, err = kv.Create(ctx, key, value)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return "Known", nil
	case err != nil:
		return "Failed", err
	default:
		return "Told", nil
	}
}
