// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// An object of a guest that is not under its own key may be in a pack, since its day was compacted. The manifests have it.
// They are not read for each object that comes: mirrors bring the objects of a day one after the other, and for a day that
// was read it is known which objects it listed then.

const (
	// listedFor is how long the list of a day is believed. Objects that were stored since are under their own keys for
	// longer: the archivist packs no day before it is over for 24 hours, and removes what it packed 24 hours later.
	listedFor = 10 * time.Minute
	// openFor is how long a day is cached that was not over when it was read: it is not packed soon, and has a part for
	// each minute.
	openFor = 2 * time.Hour
	// maxListed is how many objects of days are remembered: 16 MiB.
	maxListed = 1 << 20
)

// listedIDs remembers which objects days listed.
type listedIDs struct {
	archive *Archive

	mu    sync.Mutex
	days  map[listedDay]*knownDay
	count int
}

// knownDay is what a day listed when it was read.
type knownDay struct {
	at time.Time
	// ids are in order.
	ids []manifest.IDHash
}

// find returns what the manifests say of an object that is not under its own key. Anew: they are read whatever is remembered, because
// objects that came since may be lost by now. Errors: of the store.
func (l *listedIDs) find(ctx context.Context, n wire.Notice, anew bool) (r wire.Record, found bool, err error) {
	k := listedDay{n.Instrument, wire.DayOf(n.ReceivedAt)}
	if !anew {
		day, err := l.day(ctx, k)
		if err != nil || !day.lists(n.ID) {
			return r, false, err
		}
	}
	return l.archive.listing(ctx, k.instrument, k.day, n.ID)
}

func (d *knownDay) lists(id string) bool {
	_, found := slices.BinarySearchFunc(d.ids, manifest.HashID(id), compareHashes)
	return found
}

// holds is how long what was read of a day is believed.
func (d *knownDay) holds(day wire.Day) time.Duration {
	if day >= wire.DayOf(d.at) {
		return openFor
	}
	return listedFor
}

func compareHashes(a, b manifest.IDHash) int { return bytes.Compare(a[:], b[:]) }

func (l *listedIDs) day(ctx context.Context, k listedDay) (*knownDay, error) {
	l.mu.Lock()
	day := l.days[k]
	l.mu.Unlock()
	if day != nil && time.Since(day.at) < day.holds(k.day) {
		return day, nil
	}
	day = &knownDay{at: time.Now()}
	err := l.archive.eachListed(ctx, k.instrument, k.day, func(r wire.Record) bool {
		day.ids = append(day.ids, manifest.HashID(r.ID))
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(day.ids, compareHashes)
	l.remember(k, day)
	return day, nil
}

// remember replaces what is known of a day, and forgets the days that were read first if there are too many.
func (l *listedIDs) remember(k listedDay, day *knownDay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.days == nil {
		l.days = map[listedDay]*knownDay{}
	}
	l.forget(k)
	for len(l.days) > 0 && l.count+day.cost() > maxListed {
		var oldest listedDay
		var at time.Time
		for k, d := range l.days {
			if at.IsZero() || d.at.Before(at) {
				oldest, at = k, d.at
			}
		}
		l.forget(oldest)
	}
	l.days[k] = day
	l.count += day.cost()
}

func (l *listedIDs) forget(k listedDay) {
	if d := l.days[k]; d != nil {
		l.count -= d.cost()
		delete(l.days, k)
	}
}

// cost of a day, in objects: one that lists nothing takes space, too.
func (d *knownDay) cost() int { return len(d.ids) + 16 }
