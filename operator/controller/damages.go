// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// takeDamage stores the report about one object of an instrument, or that it is whole.
func (r *reports) takeDamage(instrument string, entry jetstream.KeyValueEntry) {
	var damage wire.Damage
	if entry.Operation() == jetstream.KeyValuePut {
		var err error
		if damage, err = wire.Decode[wire.Damage](entry.Value()); err != nil {
			r.log.Warn("cannot read the report of a damaged object", "key", entry.Key(), "error", err)
			return
		}
	}
	r.mu.Lock()
	if damage.ID == "" {
		delete(r.damages[instrument], entry.Key())
	} else {
		if r.damages[instrument] == nil {
			r.damages[instrument] = map[string]wire.Damage{}
		}
		r.damages[instrument][entry.Key()] = damage
	}
	r.mu.Unlock()
	r.damageChanged(instrument)
	r.ledgerChanged()
}

// takeScrub stores when the archivist last read the archive.
func (r *reports) takeScrub(value []byte) {
	status, err := wire.Decode[wire.ScrubStatus](value)
	if err != nil {
		r.log.Warn("the report of the scrub cannot be read", "error", err)
		return
	}
	r.mu.Lock()
	r.scrub = &status
	r.mu.Unlock()
	r.ledgerChanged()
}

// ofScrub returns when the archivist last read the archive, nil if this was not reported yet, and how many objects are known to be damaged.
func (r *reports) ofScrub() (*wire.ScrubStatus, plan.DamageCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var counts plan.DamageCounts
	for _, damaged := range r.damages {
		for _, d := range damaged {
			counts.Add(d)
		}
	}
	return r.scrub, counts
}

// ofDamage returns the known damage of an instrument.
func (r *reports) ofDamage(instrument string) []wire.Damage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.damages[instrument]))
}
