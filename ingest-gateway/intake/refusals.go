// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Refusals counts senders that nearly were an instrument, for the users that declared it. It is
// bounded by the numbers of instruments and causes.
type Refusals struct {
	mu sync.Mutex
	// by instrument and cause.
	by      map[string]map[wire.Cause]wire.Refused
	changed map[string]bool
}

// Note counts n refusals; those near no instrument leave no trace here. The
// source may have port 0.
func (r *Refusals) Note(refusal Refusal, protocol string, port uint16, source netip.Addr, n int) {
	if refusal.Instrument == "" || n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by, r.changed = map[string]map[wire.Cause]wire.Refused{}, map[string]bool{}
	}
	causes := r.by[refusal.Instrument]
	if causes == nil {
		causes = map[wire.Cause]wire.Refused{}
		r.by[refusal.Instrument] = causes
	}
	causes[refusal.Cause] = wire.Refused{
		Count: causes[refusal.Cause].Count + uint64(n), Source: source.Unmap().WithZone("").String(),
		Protocol: protocol, Port: port, Shown: refusal.Shown, At: time.Now().UTC(),
	}
	r.changed[refusal.Instrument] = true
}

// Changed returns what became of the instruments that were refused for since
// the last call, by instrument.
func (r *Refusals) Changed() map[string]map[wire.Cause]wire.Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := map[string]map[wire.Cause]wire.Refused{}
	for _, name := range slices.Collect(maps.Keys(r.changed)) {
		changed[name] = maps.Clone(r.by[name])
	}
	clear(r.changed)
	return changed
}

// Again has an instrument reported once more: the last report failed.
func (r *Refusals) Again(instrument string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed[instrument] = true
}
