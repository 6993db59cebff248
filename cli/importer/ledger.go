// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// ledger has the column of wire.ImportWriter for one instrument. wire.ImportIncarnation
// stands for all runs: the totals are those of what the manifests list as imported and of
// what was announced since, not of a process. So a run that was killed leaves nothing behind
// that the next does not put right.
type ledger struct {
	kv         jetstream.KeyValue
	instrument string

	mu     sync.Mutex
	totals map[wire.Day]wire.Totals
	dirty  map[wire.Day]bool
}

// openLedger begins with what the manifests list, and notes the days for which the ledger says something else.
func openLedger(ctx context.Context, kv jetstream.KeyValue, instrument string, listed map[wire.Day]wire.Totals) (*ledger, error) {
	l := &ledger{kv: kv, instrument: instrument, totals: listed, dirty: make(map[wire.Day]bool)}
	for day, totals := range listed {
		value, err := encode(totals)
		if err != nil {
			return nil, err
		}
		e, err := kv.Get(ctx, l.key(day))
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, fmt.Errorf("read %s of the ledger: %w", l.key(day), err)
		}
		l.dirty[day] = err != nil || string(e.Value()) != string(value)
	}
	return l, nil
}

func (l *ledger) key(day wire.Day) string {
	return wire.LedgerKey(l.instrument, day, wire.StepReceived, wire.ImportWriter)
}

func encode(t wire.Totals) ([]byte, error) {
	t.Acknowledged = t.Objects
	return wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{wire.ImportIncarnation: t}})
}

// add counts an object that was announced.
func (l *ledger) add(r wire.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	day := wire.DayOf(r.ReceivedAt)
	l.totals[day] = l.totals[day].Plus(totalsOf(r))
	l.dirty[day] = true
}

// save writes the column of the days that changed. It is called by one goroutine.
func (l *ledger) save(ctx context.Context) error {
	for day, totals := range l.changed() {
		value, err := encode(totals)
		if err != nil {
			return err
		}
		if _, err := l.kv.Put(ctx, l.key(day), value); err != nil {
			l.markDirty(day)
			return fmt.Errorf("write %s of the ledger: %w", l.key(day), err)
		}
	}
	return nil
}

func (l *ledger) changed() map[wire.Day]wire.Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := make(map[wire.Day]wire.Totals)
	for day, dirty := range l.dirty {
		if dirty {
			changed[day] = l.totals[day]
		}
	}
	clear(l.dirty)
	return changed
}

func (l *ledger) markDirty(day wire.Day) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty[day] = true
}
