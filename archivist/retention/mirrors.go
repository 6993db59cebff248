// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Partner is a partner that is to have copies: a MirrorPartner that is pushed to, or a reader that pulls and confirms what it has.
// Neither is set if its entry cannot be read.
type Partner struct {
	Push *wire.MirrorEntry
	Pull *wire.ReaderEntry
}

// hold is how long what is due waits for the partner at most.
func (p Partner) hold() time.Duration {
	switch {
	case p.Push != nil:
		return p.Push.Hold()
	case p.Pull != nil:
		return p.Pull.Pulls.Hold()
	default:
		return math.MaxInt64
	}
}

// selects returns what says whether the partner is to have an object of an instrument; nil: it is to have none. In is nil for an instrument
// that the registry does not know.
func (p Partner) selects(in *wire.InstrumentEntry, now time.Time) func(*wire.Record) bool {
	switch {
	case p.Push == nil && p.Pull == nil:
		return func(*wire.Record) bool { return true }
	case in == nil:
		return nil
	case p.Push != nil:
		return access.Mirrored(p.Push, in, now)
	default:
		return access.Pulled(p.Pull, in, now)
	}
}

// allVersions says whether the partner is to have superseded versions. A reader that pulls confirms nothing of them.
func (p Partner) allVersions() bool {
	return p.Push != nil && p.Push.Selection.Versions == wire.MirrorVersionsAll
}

// keeps says whether the partner may keep its copy of an object that was retracted or has expired here.
func (p Partner) keeps(rec *wire.Record) bool {
	switch {
	case p.Push != nil:
		return rec.State == wire.StateRetracted && p.Push.Retractions == wire.MirrorIgnore || rec.Expired() && p.Push.Prune != wire.MirrorPruneWhenExpired
	case p.Pull != nil:
		return rec.State == wire.StateRetracted || rec.Expired()
	default:
		return false
	}
}

// share is what a partner has of an instrument's day, and what it is to have.
type share struct {
	// hold is how long what is due waits for the partner at most.
	hold time.Duration
	// has is what the partner confirmed, as the ledger says.
	has wire.Totals
	// given is what it is to have. Kept are copies that it may have beside that: of what was retracted or expired here, where it
	// keeps them.
	given, kept wire.Totals
	// beyond are objects that would expire with the day and that the partner is not given.
	beyond int
	// asked are the purged objects of the batch, by ID, that the partner may have copies of.
	asked map[string]bool

	partner Partner
	selects func(*wire.Record) bool
}

// shares returns what is to be known of the partners that have, or are to have, something of an instrument's day. A run notes in the
// ledger what its partner has once all of the day is there, so a partner without an entry counts as one that lacks everything, and
// may have any of it.
func (r *Collector) shares(ctx context.Context, b *batch, now time.Time) (map[string]*share, error) {
	has, err := r.mirrored(ctx, b)
	if err != nil {
		return nil, err
	}
	all := map[string]*share{}
	for partner, p := range r.partners(has) {
		s := &share{hold: p.hold(), has: has[partner], asked: map[string]bool{}, partner: p}
		_, told := has[partner]
		if s.selects = p.selects(r.entry(b.instrument), now); s.selects == nil {
			s.selects = func(*wire.Record) bool { return false }
			if !told {
				continue
			}
		}
		all[partner] = s
	}
	if len(all) == 0 {
		return nil, nil
	}
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, err
		}
		for partner, s := range all {
			s.count(partner, b, &rec)
		}
	}
	return all, nil
}

// count looks at an object of the day.
func (s *share) count(partner string, b *batch, rec *wire.Record) {
	selected := s.selects(rec)
	given := selected && s.gives(rec)
	if !given && expires(rec) {
		s.beyond++
	}
	if o, is := b.objects[rec.ID]; is && rec.State == wire.StatePurged { // partners are given no duplicates
		s.asked[rec.ID] = o.Asks(partner, s.has) || selected && o.Unconfirmed(partner)
	}
	switch {
	case given:
		s.given.AddCopy(rec)
	case selected && s.partner.keeps(rec):
		s.kept.AddCopy(rec)
	}
}

// gives says whether the partner is to have an object that it selects.
func (s *share) gives(rec *wire.Record) bool {
	return rec.State == wire.StateCurrent || rec.State == wire.StateSuperseded && s.partner.allVersions()
}

// holds says whether the partner has confirmed all of the day, by digest, and keeps it whatever expires here.
func (s *share) holds() bool {
	push := s.partner.Push
	keeps := s.partner.Pull != nil || push != nil && push.Prune == wire.MirrorPruneNever && push.Verify == wire.MirrorVerifyDigest
	return keeps && s.beyond == 0 && s.given.Objects+s.given.Datagrams > 0 && !s.lacks()
}

// Why a day stays that may go where partners have it.
const (
	keptLacking    = "Lacking"     // a partner lacks some of it, or none has all
	keptUncompared = "NotCompared" // the partner that has all of it did not compare its copies for comparedWithin
)

// comparedWithin is how long ago a partner may have compared what it has for a day to go that is nowhere else. A run that pushes compares
// a share of the copies, and all once something is missing in that: a disk that was lost is found by the next run. It is the time of
// several runs of a daily schedule, with a long weekend in between.
const comparedWithin = 7 * 24 * time.Hour

// comparedAhead is how far the time of a comparison may be ahead. One that lies further ahead was written by a clock that was wrong, and
// would count as recent until that time has come: it does not count.
const comparedAhead = time.Hour

// isFullyMirrored says whether a partner has all of a day and compared what it has lately, and none lacks some of what it is to have. Kept says why
// not.
func (r *Collector) isFullyMirrored(ctx context.Context, b *batch, now time.Time) (held bool, kept string, err error) {
	if r.cfg.Partners == nil {
		return false, keptLacking, nil
	}
	if _, known := r.cfg.Partners(); !known {
		return false, keptLacking, nil
	}
	all, err := r.shares(ctx, b, now)
	if err != nil {
		return false, "", err
	}
	kept = keptLacking
	for partner, s := range all {
		switch {
		case s.lacks():
			return false, keptLacking, nil
		case !s.holds():
			continue
		}
		compared, err := r.comparedAt(ctx, partner, s.partner, now)
		if err != nil {
			return false, "", err
		}
		if age := now.Sub(compared); age > comparedWithin {
			kept = keptUncompared
		} else {
			held = true
		}
	}
	return held, kept, nil
}

// comparedAt returns when a partner's copies were last compared with what they are to be, as its runs report; the zero time: that is not
// known. The reports of a push that is begun by notices too do not say which of its runs compared: such a push counts if it compares often enough.
func (r *Collector) comparedAt(ctx context.Context, partner string, p Partner, now time.Time) (at time.Time, err error) {
	if p.Push != nil && p.Push.Continuous != nil && time.Duration(p.Push.Continuous.IntervalMillis)*time.Millisecond > comparedWithin {
		return time.Time{}, nil
	}
	keys := wire.MirrorStatusKey(partner, "*")
	if p.Pull != nil {
		keys = wire.PullerStatusKey(p.Pull.Reader)
	}
	err = stream.EntriesOf(ctx, r.cfg.JetStream, wire.StatusBucket(r.cfg.Site), keys, func(e jetstream.KeyValueEntry) error {
		var compared time.Time
		var err error
		if p.Pull != nil {
			var status wire.PullerStatus
			status, err = wire.Decode[wire.PullerStatus](e.Value())
			compared = status.ComparedAt
		} else {
			var status wire.MirrorStatus
			status, err = wire.Decode[wire.MirrorStatus](e.Value())
			compared = status.VerifiedTo
		}
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key(), err)
		}
		if compared.After(at) && compared.Before(now.Add(comparedAhead)) {
			at = compared
		}
		return nil
	})
	return at, err
}

// lacks says whether the partner may lack something that it is to have. As many objects are not the same objects, nor as many datagrams
// the same segments: the sums of their digests are compared.
func (s *share) lacks() bool {
	all := s.given.Plus(s.kept)
	return s.given.Objects+s.given.Datagrams > 0 &&
		(!s.has.SameObjects(s.given) && !s.has.SameObjects(all) || !s.has.SameSegments(s.given) && !s.has.SameSegments(all))
}

// mirrored returns what partners have of an instrument's day, by partner, as the ledger says.
func (r *Collector) mirrored(ctx context.Context, b *batch) (map[string]wire.Totals, error) {
	has := map[string]wire.Totals{}
	for step, named := range map[wire.Step]func(writer string) string{
		wire.StepMirrored: func(partner string) string { return partner }, wire.StepPulled: wire.PullerName,
	} {
		err := stream.EntriesOf(ctx, r.cfg.JetStream, wire.LedgerBucket(r.cfg.Site), wire.LedgerKey(b.instrument, b.day, step, "*"), func(e jetstream.KeyValueEntry) error {
			_, _, _, writer, err := wire.ParseLedgerKey(e.Key())
			if err != nil {
				return err
			}
			entry, err := wire.Decode[wire.LedgerEntry](e.Value())
			if err != nil {
				return fmt.Errorf("ledger entry %s: %w", e.Key(), err)
			}
			has[named(writer)] = entry.Sum()
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return has, nil
}

// partners returns the declared partners, see Config.Partners. While they are unknown, every partner counts that has something
// of the day.
func (r *Collector) partners(has map[string]wire.Totals) map[string]Partner {
	if r.cfg.Partners != nil {
		if declared, known := r.cfg.Partners(); known {
			return declared
		}
	}
	all := map[string]Partner{}
	for partner := range has {
		all[partner] = Partner{}
	}
	return all
}

// owing is why a day that is due waits for partners, and until when that is not looked at again: thousands of days may wait for one
// partner, and each look reads the manifest of the day.
type owing struct {
	err   error
	until time.Time
}

// owedLooks is how often a day that waits for partners is looked at within Config.ExpireInterval.
const owedLooks = 6

// owed says for which partners a day waits that is due: those that may lack some of what they are to have. Hold is how long at most,
// as its Instrument says, counted from when the day was found to be due; a partner may say less.
func (r *Collector) owed(ctx context.Context, b *batch, hold time.Duration, now time.Time) (*owing, error) {
	all, err := r.shares(ctx, b, now)
	if err != nil {
		return nil, err
	}
	until := now.Add(r.cfg.ExpireInterval / owedLooks)
	var lack []string
	for _, partner := range slices.Sorted(maps.Keys(all)) {
		end := b.whole.At.Add(min(hold, all[partner].hold))
		if !all[partner].lacks() || !highwater.Limit(now).Before(end) { // a clock that is ahead ends no wait
			continue
		}
		lack = append(lack, partner)
		if end.After(now) && end.Before(until) {
			until = end
		}
	}
	if len(lack) == 0 {
		return nil, nil
	}
	return &owing{&waits{waitMirrors, fmt.Errorf("%s have not got it", strings.Join(lack, ", "))}, until}, nil
}

// unconfirmed says for which partners the purges of a batch wait: those that are declared and pushed to, may have a copy, and have not said
// that they removed it too.
func (r *Collector) unconfirmed(ctx context.Context, b *batch, now time.Time) error {
	if len(b.objects) == 0 {
		return nil // what expires here, partners keep as long as they like
	}
	all, err := r.shares(ctx, b, now)
	if err != nil {
		return err
	}
	var waiting []string
	for _, partner := range slices.Sorted(maps.Keys(all)) {
		if wire.IsPuller(partner) { // it finds purges in the lists, and confirms none, also where its entry cannot be read
			continue
		}
		confirmed, err := r.confirmed(ctx, b, partner, all[partner].asked)
		if err != nil {
			return err
		}
		if !confirmed {
			waiting = append(waiting, partner)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return &waits{waitMirrors, errors.New(strings.Join(waiting, ", ") + " did not confirm the purge")}
}

// confirmed says whether a partner confirmed all purges that are asked of it.
func (r *Collector) confirmed(ctx context.Context, b *batch, partner string, asked map[string]bool) (bool, error) {
	for id, is := range asked {
		if !is {
			continue
		}
		_, err := r.kv.Get(ctx, wire.MirrorConfirmedKey(partner, b.objects[id]))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read what partner %s confirmed: %w", partner, err)
		}
	}
	return true, nil
}

// forgetConfirmed deletes what partners confirmed of removals of a day that are done. That comes behind the removals: what is deleted
// before one would be asked for without an end, if a kill came between.
func (r *Collector) forgetConfirmed(ctx context.Context, b *batch, done map[string]bool) error {
	if len(b.objects) == 0 {
		return nil
	}
	of := wire.MirrorConfirmedKey("*", wire.Removal{Instrument: b.instrument, Day: b.day}) + ".*"
	confirmed, err := r.allConfirmed(ctx, of)
	if err != nil {
		return err
	}
	return r.forget(ctx, confirmed, func(removal string) bool { return done[removal] })
}

// forgetLeft deletes what partners confirmed of removals that are not there any more: an archivist was killed that had done them.
func (r *Collector) forgetLeft(ctx context.Context) error {
	confirmed, err := r.allConfirmed(ctx, wire.MirrorConfirmedKeys("*"))
	if err != nil || len(confirmed) == 0 {
		return err
	}
	// Removals are read after what was confirmed of them: one that is not there then is done.
	all, err := r.batches(ctx)
	if err != nil {
		return err
	}
	wait := map[string]bool{}
	for _, b := range all {
		for _, key := range b.keys() {
			wait[key] = true
		}
	}
	return r.forget(ctx, confirmed, func(removal string) bool { return !wait[removal] })
}

// allConfirmed returns the keys of what partners confirmed.
func (r *Collector) allConfirmed(ctx context.Context, match string) (keys []string, err error) {
	err = stream.EntriesSince(ctx, r.kv, match, 0, func(e jetstream.KeyValueEntry) error {
		keys = append(keys, e.Key())
		return nil
	})
	return keys, err
}

func (r *Collector) forget(ctx context.Context, confirmed []string, goes func(removal string) bool) error {
	for _, key := range confirmed {
		removal, is := wire.ParseMirrorConfirmedKey(key)
		if !is || !goes(removal) {
			continue
		}
		if err := r.cfg.Lease.Check(); err != nil {
			return err
		}
		if err := r.kv.Delete(ctx, key); err != nil {
			return fmt.Errorf("delete %s of %s: %w", key, r.kv.Bucket(), err)
		}
	}
	return nil
}
