// SPDX-License-Identifier: Apache-2.0

package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Book is where it is noted what a partner has.
type Book interface {
	// Month returns what is known of an instrument's days of a month (yyyy-mm).
	Month(ctx context.Context, instrument, month string) (Month, error)
	// Instruments are those of whose days anything is known.
	Instruments(ctx context.Context) ([]string, error)
	// SetDay notes what is known of a day in place of what the run had read of it; false: another run noted something since, and that
	// stays.
	SetDay(ctx context.Context, instrument string, day wire.Day, was, known KnownDay) (bool, error)
	// SetConfirmed is SetDay, and notes in the ledger what the partner has of the day.
	SetConfirmed(ctx context.Context, instrument string, day wire.Day, was, known KnownDay, has wire.Totals) (bool, error)
	// SetMissing notes that the partner has less of a day than it had confirmed, whatever another run noted since.
	SetMissing(ctx context.Context, instrument string, day wire.Day, known KnownDay, has wire.Totals) error
	// Mirrored is what the ledger says that the partner has of a day.
	Mirrored(ctx context.Context, instrument string, day wire.Day) (wire.Totals, error)
	// Place returns a place by its name, and KeepPlace notes one.
	Place(ctx context.Context, name string) (Place, bool, error)
	KeepPlace(ctx context.Context, name string, p Place) error
	// Confirm notes that the partner has removed an object, where that was asked of it.
	Confirm(ctx context.Context, instrument string, day wire.Day, id string) error
	// Asked calls f for the purges that the partner has not confirmed, those of a day in turn.
	Asked(ctx context.Context, f func(Asked) error) error
	// SetUnverified notes in the ledger that nothing of a day is known to be at the partner. The next run compares what it had confirmed.
	SetUnverified(ctx context.Context, instrument string, day wire.Day) error
	// Doubt is why it is not certain that the partner has what it confirmed; zero: there is none. SetDoubt notes it.
	Doubt(ctx context.Context) (Doubt, error)
	SetDoubt(ctx context.Context, d Doubt) error
	// Share is the part of the copies that the next run verifies, and SetShare notes it.
	Share(ctx context.Context) (plan.Share, error)
	SetShare(ctx context.Context, next plan.Share) error
}

// Month is what is known of the days of one.
type Month struct {
	Days map[wire.Day]KnownDay `json:"days"`
}

// KnownDay is what a partner has confirmed of a day.
type KnownDay struct {
	// Tag of the day when all of it was confirmed; empty: the next run looks at it again.
	Tag string `json:"tag"`
	// Place where the copies lie, by a hash, and Left are those that lie elsewhere.
	Place string `json:"place,omitempty"`
	Left  []Left `json:"left,omitempty"`
	// Begun: a run began to bring objects, and none noted what it brought.
	Begun bool `json:"begun,omitempty"`
	plan.PushKnown
	// Moved is which run, by the time at which it began, moved something last: objects that
	// were received after Before.
	Moved  time.Time `json:"moved,omitzero"`
	Before time.Time `json:"before,omitzero"`
	// Checked is which run, by the time at which it began, last found all of the day at the partner.
	Checked time.Time `json:"checked,omitzero"`
}

// same says whether two notes about a day say the same. A time that was read again may differ in how it is held.
func (k KnownDay) same(other KnownDay) bool {
	a, err := json.Marshal(k)
	b, err2 := json.Marshal(other)
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// Asked is a purge. Has: the partner has something of the day.
type Asked struct {
	wire.Removal
	Has bool
}

// KV is a Book in the buckets of a Site.
type KV struct {
	site, partner   string
	js              jetstream.JetStream
	cursors, ledger jetstream.KeyValue
	months          map[string]*page
}

// page is a month as it was read or written last.
type page struct {
	Month
	cell *stream.Cell
}

// maxMonths are kept in memory: with 31 days each, of 400 bytes, that are 6 MB.
const maxMonths = 512

// OpenKV opens the book of a partner. Errors: of NATS.
func OpenKV(ctx context.Context, js jetstream.JetStream, site, partner string) (*KV, error) {
	b := &KV{site: site, partner: partner, js: js, months: map[string]*page{}}
	var err error
	if b.cursors, err = js.KeyValue(ctx, wire.CursorBucket(site)); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.CursorBucket(site), err)
	}
	if b.ledger, err = js.KeyValue(ctx, wire.LedgerBucket(site)); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.LedgerBucket(site), err)
	}
	return b, nil
}

// key of a month; instruments and partners have names as long as DNS labels.
func (b *KV) key(instrument, month string) string {
	return wire.MirrorCursorKey(b.partner, month+"-"+instrument)
}

// Month implements Book.
func (b *KV) Month(ctx context.Context, instrument, month string) (Month, error) {
	p, err := b.page(ctx, b.key(instrument, month))
	if err != nil {
		return Month{}, err
	}
	return p.Month, nil
}

// page returns a month, as it was read or written last.
func (b *KV) page(ctx context.Context, key string) (*page, error) {
	if p, known := b.months[key]; known {
		return p, nil
	}
	return b.read(ctx, key)
}

// read reads a month as it is now.
func (b *KV) read(ctx context.Context, key string) (*page, error) {
	p := &page{cell: stream.NewCell(b.js, b.cursors, key)}
	value, err := p.cell.Load(ctx)
	if err == nil && value != nil {
		p.Month, err = wire.Decode[Month](value)
	}
	if err != nil {
		return nil, fmt.Errorf("%s of bucket %s: %w", key, b.cursors.Bucket(), err)
	}
	if p.Days == nil {
		p.Days = map[wire.Day]KnownDay{}
	}
	if len(b.months) >= maxMonths {
		clear(b.months)
	}
	b.months[key] = p
	return p, nil
}

// change changes what is known of a day from what it is to what it becomes, unless that is refused. Two runs of a partner may be at
// it: what either notes of other days stays.
func (b *KV) change(ctx context.Context, instrument string, day wire.Day, becomes func(is KnownDay) (KnownDay, bool)) (bool, error) {
	key := b.key(instrument, mirrorindex.MonthOf(day))
	p, err := b.page(ctx, key)
	for err == nil {
		next, may := becomes(p.Days[day])
		if !may {
			return false, nil
		}
		m := Month{Days: maps.Clone(p.Days)}
		m.Days[day] = next
		value, err := wire.Encode(m)
		if err == nil {
			err = p.cell.Store(ctx, value)
		}
		if err == nil {
			p.Month = m
			return true, nil
		}
		if !errors.Is(err, stream.ErrConflict) {
			delete(b.months, key)
			return false, err
		}
		if p, err = b.read(ctx, key); err != nil {
			return false, err
		}
	}
	return false, err
}

// Instruments implements Book.
func (b *KV) Instruments(ctx context.Context) ([]string, error) {
	begins := strings.TrimSuffix(wire.MirrorCursorKey(b.partner, "*"), "*")
	keys, err := b.cursors.ListKeysFiltered(ctx, begins+"*")
	if err != nil {
		return nil, fmt.Errorf("keys %s* of bucket %s: %w", begins, b.cursors.Bucket(), err)
	}
	names := map[string]bool{}
	for key := range keys.Keys() {
		part := strings.TrimPrefix(key, begins)
		if month, rest := part[:min(len(part), len("2006-01"))], part[min(len(part), len("2006-01")):]; mirrorindex.CheckMonth(month) == nil && len(rest) > 1 {
			names[rest[1:]] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), ctx.Err()
}

// SetDay implements Book.
func (b *KV) SetDay(ctx context.Context, instrument string, day wire.Day, before, known KnownDay) (bool, error) {
	return b.change(ctx, instrument, day, func(current KnownDay) (KnownDay, bool) { return known, current.same(before) })
}

// SetConfirmed implements Book. Another run may find at the same time that the partner lacks something: it writes the day first and
// then the ledger, and this one the other way around, each in place of what it saw. So the last word in both is the other run's.
func (b *KV) SetConfirmed(ctx context.Context, instrument string, day wire.Day, before, known KnownDay, has wire.Totals) (bool, error) {
	column := b.column(instrument, day)
	if _, err := column.Load(ctx); err != nil {
		return false, err
	}
	p, err := b.read(ctx, b.key(instrument, mirrorindex.MonthOf(day)))
	if err != nil || !p.Days[day].same(before) {
		return false, err
	}
	value, err := wire.Encode(wire.Mirrored(has))
	if err == nil {
		err = column.Store(ctx, value)
	}
	if errors.Is(err, stream.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return b.SetDay(ctx, instrument, day, before, known)
}

// SetMissing implements Book.
func (b *KV) SetMissing(ctx context.Context, instrument string, day wire.Day, known KnownDay, has wire.Totals) error {
	if _, err := b.change(ctx, instrument, day, func(KnownDay) (KnownDay, bool) { return known, true }); err != nil {
		return err
	}
	return stream.Save(ctx, b.ledger, wire.LedgerKey(instrument, day, wire.StepMirrored, b.partner), wire.Mirrored(has))
}

// SetUnverified implements Book.
func (b *KV) SetUnverified(ctx context.Context, instrument string, day wire.Day) error {
	has, err := b.Mirrored(ctx, instrument, day)
	if err != nil || has.Objects == 0 && has.Datagrams == 0 {
		return err
	}
	return stream.Save(ctx, b.ledger, wire.LedgerKey(instrument, day, wire.StepMirrored, b.partner), wire.Mirrored(wire.Totals{}))
}

// doubtPart is the part of a partner's cursors that says why it is not certain that it has what it confirmed.
const doubtPart = "doubt"

// Doubt implements Book.
func (b *KV) Doubt(ctx context.Context) (Doubt, error) {
	d, _, err := stream.Load[Doubt](ctx, b.cursors, wire.MirrorCursorKey(b.partner, doubtPart))
	return d, err
}

// SetDoubt implements Book.
func (b *KV) SetDoubt(ctx context.Context, d Doubt) error {
	return stream.Save(ctx, b.cursors, wire.MirrorCursorKey(b.partner, doubtPart), d)
}

// column is the partner's entry of the ledger for a day. Runs read the ledger as its leader has it, and have no right to ask a replica.
func (b *KV) column(instrument string, day wire.Day) *stream.Cell {
	return stream.NewCell(b.js, b.ledger, wire.LedgerKey(instrument, day, wire.StepMirrored, b.partner))
}

// Mirrored implements Book.
func (b *KV) Mirrored(ctx context.Context, instrument string, day wire.Day) (wire.Totals, error) {
	value, err := b.column(instrument, day).Load(ctx)
	if err != nil || value == nil {
		return wire.Totals{}, err
	}
	entry, err := wire.Decode[wire.LedgerEntry](value)
	return entry.Sum(), err
}

// placePart begins the parts of a partner's cursors that say where copies lie.
const placePart = "place-"

// Place implements Book.
func (b *KV) Place(ctx context.Context, name string) (Place, bool, error) {
	return stream.Load[Place](ctx, b.cursors, wire.MirrorCursorKey(b.partner, placePart+name))
}

// KeepPlace implements Book.
func (b *KV) KeepPlace(ctx context.Context, name string, p Place) error {
	if is, found, err := b.Place(ctx, name); err != nil || found && reflect.DeepEqual(is, p) {
		return err
	}
	return stream.Save(ctx, b.cursors, wire.MirrorCursorKey(b.partner, placePart+name), p)
}

// Confirm implements Book.
func (b *KV) Confirm(ctx context.Context, instrument string, day wire.Day, id string) error {
	asked := wire.Removal{Instrument: instrument, Day: day, ID: id}
	if _, err := b.cursors.Get(ctx, asked.Key()); err != nil {
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil // it is done, or was not asked for
		}
		return fmt.Errorf("removal %s: %w", asked.Key(), err)
	}
	return stream.Save(ctx, b.cursors, wire.MirrorConfirmedKey(b.partner, asked), wire.MirrorConfirmed{At: time.Now().UTC()})
}

// Asked implements Book.
func (b *KV) Asked(ctx context.Context, f func(Asked) error) error {
	all := map[string]wire.Removal{}
	err := stream.EntriesOf(ctx, b.js, wire.CursorBucket(b.site), wire.RemovalKeys, func(e jetstream.KeyValueEntry) error {
		r, err := wire.Decode[wire.Removal](e.Value())
		if err != nil {
			return fmt.Errorf("removal %s: %w", e.Key(), err)
		}
		if r.Unconfirmed(b.partner) && len(all) < maxAsked {
			all[e.Key()] = r
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		r := all[key]
		if _, confirmed, err := stream.Load[wire.MirrorConfirmed](ctx, b.cursors, wire.MirrorConfirmedKey(b.partner, r)); err != nil {
			return err
		} else if confirmed {
			continue
		}
		has, err := b.Mirrored(ctx, r.Instrument, r.Day)
		if err != nil {
			return err
		}
		if err := f(Asked{r, r.Asks(b.partner, has)}); err != nil {
			return err
		}
	}
	return nil
}

// maxAsked bounds the purges that a run looks at, which it has in memory: the next one looks at the rest.
const maxAsked = 20_000

// sharePart is the part of a partner's cursors that says which copies are verified next.
const sharePart = "verify"

// Share implements Book.
func (b *KV) Share(ctx context.Context) (plan.Share, error) {
	s, _, err := stream.Load[plan.Share](ctx, b.cursors, wire.MirrorCursorKey(b.partner, sharePart))
	return s, err
}

// SetShare implements Book.
func (b *KV) SetShare(ctx context.Context, next plan.Share) error {
	return stream.Save(ctx, b.cursors, wire.MirrorCursorKey(b.partner, sharePart), next)
}
