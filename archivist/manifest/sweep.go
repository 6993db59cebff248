// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/highwater"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// wholeSweep is how often the whole bucket is compared rather than the days
	// since the last comparison.
	wholeSweep = 24 * time.Hour
	// leftoverAge is the age after which an object in staging has no owner any more.
	leftoverAge = 24 * time.Hour
	// sweepBatch objects are compared at once.
	sweepBatch = 1000
)

// SweepConfig says how to sweep.
type SweepConfig struct {
	holder.Base

	// Deleter deletes what is no longer needed.
	Deleter *deletion.Deleter
	// Agree returns stream.ErrClock if a second clock does not agree with ours: then nothing is compared, and
	// nothing removed from staging. Optional: by default the clock of the NATS server is asked.
	Agree func(ctx context.Context, ours time.Time) error
	// Interval between sweeps, and Age from which a stored object must be listed.
	Interval, Age time.Duration

	Metrics *Metrics
}

// Sweeper compares the bucket with the manifests: it announces what was stored
// and never announced, and removes duplicates and leftovers that a kill left.
type Sweeper struct {
	cfg    SweepConfig
	writer *Writer
	// cursors is the bucket that the cell is of.
	cursors jetstream.KeyValue
	cell    *stream.Cell
	cursor  wire.SweepCursor
	// stored is what the sweep read of storedDay.
	stored    *dayListing
	storedDay dayKey
	originals *originals
	// retracted are objects of retractedDay that were retracted or purged, by ID; nil if these are unknown.
	retracted    map[string]bool
	retractedDay dayKey
	// lost says that files of manifests are lost.
	lost *stream.Cell
	// refused: the stream was full for something that this sweep found.
	refused bool
}

// NewSweeper returns a sweeper that asks writer what is listed.
func NewSweeper(cfg SweepConfig, writer *Writer) *Sweeper {
	if cfg.Agree == nil {
		cfg.Agree = stream.ServerAgrees(cfg.JetStream, wire.CursorBucket(cfg.Site))
	}
	return &Sweeper{cfg: cfg, writer: writer, originals: newOriginals(cfg.JetStream, cfg.Store, writer.limits.ids/4)}
}

// Run sweeps at once and then each interval, until ctx ends. Errors: as Writer.Run.
func (s *Sweeper) Run(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	for wait := min(time.Until(s.cursor.Recent.Add(s.cfg.Interval)), s.cfg.Interval); ; wait = s.cfg.Interval {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.sweep(ctx, time.Now().UTC()); err != nil {
			return err
		}
	}
}

// load reads where the last sweeper stopped.
func (s *Sweeper) load(ctx context.Context) error {
	cursors, err := s.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(s.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(s.cfg.Site), err)
	}
	s.cursors = cursors
	s.cell = stream.NewCell(s.cfg.JetStream, cursors, wire.SweepCursorKey)
	s.lost = stream.NewCell(s.cfg.JetStream, cursors, wire.LostManifestsKey)
	data, err := s.cell.Load(ctx)
	if err != nil {
		return err
	}
	if data == nil {
		return nil
	}
	if s.cursor, err = wire.Decode[wire.SweepCursor](data); err != nil {
		return fmt.Errorf("cursor %s: %w", wire.SweepCursorKey, err)
	}
	return nil
}

// sweep compares once: the whole bucket once a day, else the days since the last
// comparison began.
func (s *Sweeper) sweep(ctx context.Context, now time.Time) error {
	// A clock that jumps makes objects old that are being received, and a cursor whose time is still to come.
	switch err := s.cfg.Agree(ctx, now); {
	case errors.Is(err, stream.ErrClock):
		s.cfg.Log.Error("the bucket is not compared with the manifests, and nothing is removed from staging for now", "error", err)
		return nil
	case err != nil:
		return err
	case s.cursor.Recent.After(now) || s.cursor.Whole.After(now):
		s.cursor = wire.SweepCursor{}
	}
	epoch, due, err := s.awaitListed(ctx, now)
	if err != nil {
		return err
	}
	s.stored, s.refused = nil, false
	s.retracted, s.retractedDay = nil, dayKey{}
	lost, err := s.lostSince(ctx)
	if err != nil {
		return err
	}
	if lost.Add(s.cfg.Age).After(s.cursor.Whole) { // else all that lost files listed was old enough to be announced
		s.cursor.Whole = time.Time{} // its objects are old, so all packs are looked into
	}
	whole := due || now.Sub(s.cursor.Whole) >= wholeSweep
	for instrument, err := range s.cfg.Store.Folders(ctx, wire.SitePrefix(s.cfg.Site)) {
		if err != nil {
			return err
		}
		if err := s.sweepInstrument(ctx, instrument, now, whole); err != nil {
			return err
		}
	}
	if err := s.sweepPacks(ctx, now, whole); err != nil {
		return err
	}
	if err := s.removeLeftovers(ctx, now); err != nil {
		return err
	}
	if !s.refused {
		s.cursor.Recent = now
		if whole {
			s.cursor.Whole = now
			if due {
				s.cursor.Epoch = epoch
			}
		}
	}
	if err := s.save(ctx); err != nil {
		return err
	}
	s.cfg.Metrics.swept.SetToCurrentTime()
	return nil
}

// lostSince is when it was last noticed that files of manifests are lost; zero where none ever were.
func (s *Sweeper) lostSince(ctx context.Context) (time.Time, error) {
	data, err := s.lost.Load(ctx)
	if err != nil || data == nil {
		return time.Time{}, err
	}
	lost, err := wire.Decode[wire.LostManifests](data)
	if errors.Is(err, wire.ErrMalformed) { // the comparison of each day finds the rest
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s of %s: %w", wire.LostManifestsKey, s.cursors.Bucket(), err)
	}
	return lost.Found, nil
}

func (s *Sweeper) save(ctx context.Context) error {
	value, err := wire.Encode(s.cursor)
	if err != nil {
		return err
	}
	return s.cell.Store(ctx, value)
}

// awaitListed waits until the manifests list everything that was announced by
// now, so that nothing is taken for forgotten that only waits for its part. It returns the
// epoch of the notice stream, and whether the whole bucket is to be compared because of it:
// what was announced in the stream before and not listed is lost with it, under whatever
// name, and old enough now.
func (s *Sweeper) awaitListed(ctx context.Context, now time.Time) (epoch string, due bool, err error) {
	notices, err := s.cfg.JetStream.Stream(ctx, wire.NoticeStream(s.cfg.Site))
	if err != nil {
		return "", false, fmt.Errorf("stream %s: %w", wire.NoticeStream(s.cfg.Site), err)
	}
	info := notices.CachedInfo()
	epoch = wire.StreamEpoch(info.Created)
	want := stream.Position{Epoch: epoch, Next: info.State.LastSeq + 1}
	for at := s.writer.Listed(); at.Epoch != want.Epoch || at.Next < want.Next; at = s.writer.Listed() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	return epoch, s.cursor.Epoch != epoch && now.Sub(info.Created) >= s.cfg.Age, nil
}

func (s *Sweeper) sweepInstrument(ctx context.Context, instrument string, now time.Time, whole bool) error {
	if whole {
		return s.sweepPrefix(ctx, instrument, wire.InstrumentPrefix(s.cfg.Site, instrument), now)
	}
	var channels []string
	for channel, err := range s.cfg.Store.Folders(ctx, wire.SegmentsPrefix(s.cfg.Site, instrument)) {
		if err != nil {
			return err
		}
		channels = append(channels, channel)
	}
	// Objects that were too young for the last comparison may have keys of the day before.
	for at := s.cursor.Recent.Add(-s.cfg.Age - 24*time.Hour); ; at = at.Add(24 * time.Hour) {
		day := min(wire.DayOf(at), wire.DayOf(now))
		if err := s.sweepPrefix(ctx, instrument, wire.RawPrefix(s.cfg.Site, instrument, day), now); err != nil {
			return err
		}
		for _, channel := range channels {
			if err := s.sweepPrefix(ctx, instrument, wire.SegmentPrefix(s.cfg.Site, instrument, channel, day), now); err != nil {
				return err
			}
		}
		if day == wire.DayOf(now) {
			return nil
		}
	}
}

// sweepPrefix compares the objects under a prefix, those of one slot together.
func (s *Sweeper) sweepPrefix(ctx context.Context, instrument, prefix string, now time.Time) error {
	var batch []string
	var of slotKey
	flush := func() error {
		defer func() { batch = batch[:0] }()
		return s.compare(ctx, of, batch)
	}
	for info, err := range s.cfg.Store.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		if now.Sub(info.ModifiedAt) < s.cfg.Age {
			continue
		}
		key, ok, err := s.slotOfObject(ctx, instrument, info.Key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if len(batch) == sweepBatch || key != of {
			if err := flush(); err != nil {
				return err
			}
			of = key
		}
		batch = append(batch, info.Key)
	}
	return flush()
}

// slotOfObject says where an object is listed; false if that cannot be determined.
func (s *Sweeper) slotOfObject(ctx context.Context, instrument, key string) (slotKey, bool, error) {
	if at, ok := wire.ReceivedAtOfKey(key); ok {
		return slotKey{dayKey{instrument, wire.DayOf(at)}, slotAt(at)}, true, nil
	}
	if day, ok := wire.DayOfKey(key); ok {
		return slotKey{dayKey{instrument, day}, segmentSlot}, true, nil
	}
	n, ok, err := s.notice(ctx, key) // a named object: only its metadata says
	return slotKey{dayKey{instrument, wire.DayOf(n.ReceivedAt)}, slotAt(n.ReceivedAt)}, ok, err
}

func (s *Sweeper) compare(ctx context.Context, key slotKey, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	found, err := s.ask(ctx, key, keys)
	if err != nil {
		return err
	}
	for i, l := range found {
		switch l {
		case unlisted:
			err = s.announce(ctx, keys[i])
		case duplicate:
			err = s.removeDuplicate(ctx, key.dayKey, keys[i])
		case purged:
			err = s.foundPurged(ctx, key.dayKey, keys[i])
		}
		if errors.Is(err, wire.ErrMalformed) { // of the day of its original, say
			s.cfg.Metrics.found.WithLabelValues(findingUnreadable).Inc()
			s.cfg.Log.Warn("an object is left alone, as a manifest cannot be read", "object", keys[i], "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// notice rebuilds an object's notice from its metadata; false if it is gone or no object of ours.
func (s *Sweeper) notice(ctx context.Context, key string) (wire.Notice, bool, error) {
	info, err := s.cfg.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return wire.Notice{}, false, nil
	}
	if err != nil {
		return wire.Notice{}, false, err
	}
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	if err != nil {
		s.cfg.Metrics.found.WithLabelValues(findingUnreadable).Inc()
		s.cfg.Log.Warn("an object in no manifest cannot be announced", "object", key, "error", err)
		return wire.Notice{}, false, nil
	}
	return n, true, nil
}

// announce publishes the notice that never was, or never arrived.
func (s *Sweeper) announce(ctx context.Context, key string) error {
	n, ok, err := s.notice(ctx, key)
	if err != nil || !ok {
		return err
	}
	return s.announceNotice(ctx, n)
}

func (s *Sweeper) announceNotice(ctx context.Context, n wire.Notice) error {
	if retracted, err := s.wasRetracted(ctx, n); err != nil || retracted {
		return err
	}
	if err := s.cfg.Lease.Check(); err != nil {
		return err
	}
	taken, err := publish(ctx, s.cfg.JetStream, n, s.cfg.Pod)
	var refused *jetstream.APIError
	if errors.As(err, &refused) { // a full stream: what waits is found again
		s.cfg.Log.Warn("an object in no manifest cannot be announced now", "object", n.ID, "error", err)
		s.refused = true
		return nil
	}
	if err != nil || !taken {
		return err
	}
	s.cfg.Metrics.found.WithLabelValues(findingUnannounced).Inc()
	s.cfg.Log.Info("announced an object that was stored and in no manifest", "instrument", n.Instrument, "object", n.ID)
	return nil
}

// wasRetracted says whether an object in no manifest was retracted or purged, or whether that is unknown: its line was lost with a file
// of the manifest. Announced, it would be given out again. A rebuild lists it as retracted.
func (s *Sweeper) wasRetracted(ctx context.Context, n wire.Notice) (bool, error) {
	if of := (dayKey{n.Instrument, wire.DayOf(n.ReceivedAt)}); of != s.retractedDay {
		retracted, removed := map[string]bool{}, map[string]bool{}
		changes, err := read.WalkChanges(ctx, s.cfg.Store, s.cfg.Site, of.instrument, of.day, func(r wire.Record) {
			switch r.State {
			case wire.StateRetracted:
				retracted[r.ID] = true
			case wire.StatePurged: // for ever, whatever a later line says
				removed[r.ID] = true
			default:
				delete(retracted, r.ID)
			}
		})
		if err != nil {
			return false, err
		}
		maps.Copy(retracted, removed)
		if len(changes.Unreadable) > 0 {
			retracted = nil
		}
		s.retracted, s.retractedDay = retracted, of
	}
	if s.retracted != nil && !s.retracted[n.ID] {
		return false, nil
	}
	s.cfg.Metrics.found.WithLabelValues(findingRetracted).Inc()
	s.cfg.Log.Warn("not announcing an object in no manifest: it was retracted, or the retractions cannot be read; substorm archive rebuild lists it",
		"instrument", n.Instrument, "object", n.ID)
	return true, nil
}

// removeDuplicate finishes what a writer before us began.
func (s *Sweeper) removeDuplicate(ctx context.Context, of dayKey, key string) error {
	n := wire.Notice{Site: s.cfg.Site, Instrument: of.instrument}
	var err error
	if n.Record, err = duplicateRecord(ctx, s.cfg.Store, s.cfg.Site, of, key); err != nil || n.Key != key {
		return err // its part is still open: the writer's work
	}
	stays, err := s.originals.stays(ctx, n.DuplicateOf, n)
	if err != nil {
		return err
	}
	if !stays {
		s.cfg.Metrics.found.WithLabelValues(findingOrphanDuplicate).Inc()
	} else {
		s.cfg.Metrics.found.WithLabelValues(findingDuplicate).Inc()
	}
	goes, err := removeDuplicate(ctx, duplicateConfig{Base: s.cfg.Base, deleter: s.cfg.Deleter, originals: s.originals, listing: s.listing,
		removed: removed{js: s.cfg.JetStream, bucket: s.cursors.Bucket(), store: s.cfg.Store}}, n)
	if err == nil && goes != nil {
		_, err = s.remove(ctx, time.Now(), *goes)
	}
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

func (s *Sweeper) listing(ctx context.Context, n wire.Notice) (listing, error) {
	found, err := s.ask(ctx, slotKey{dayKey{n.Instrument, wire.DayOf(n.ReceivedAt)}, slotOf(n.Record)}, []string{n.ID})
	if err != nil {
		return unlisted, err
	}
	return found[0], nil
}

// remove deletes an object. One that stays holds up nothing: the next sweep finds it again.
func (s *Sweeper) remove(ctx context.Context, now time.Time, o deletion.Object) (gone bool, err error) {
	kept, err := s.cfg.Deleter.Delete(ctx, now, o)
	return err == nil && len(kept) == 0, err
}

// removeLeftovers empties staging of what no gateway works on any more. By a clock that
// jumped, objects would be removed that are still being received.
func (s *Sweeper) removeLeftovers(ctx context.Context, now time.Time) error {
	now = highwater.Limit(now)
	before := now.Add(-leftoverAge)
	for info, err := range s.cfg.Store.List(ctx, wire.StagingPrefix(s.cfg.Site), "") {
		if err != nil {
			return err
		}
		if _, isUpload := wire.ParseUploadKey(info.Key); isUpload || info.ModifiedAt.After(before) {
			continue
		}
		o := deletion.Object{Key: info.Key, Reason: wire.DeletedStaging, KeptUntil: info.ModifiedAt.Add(leftoverAge)}
		gone, err := s.remove(ctx, now, o)
		if err != nil {
			return err
		}
		if gone {
			s.cfg.Metrics.found.WithLabelValues(findingStaging).Inc()
		}
	}
	if err := s.removeUploads(ctx, now); err != nil {
		return err
	}
	for _, prefix := range []string{wire.StagingPrefix(s.cfg.Site), wire.SitePrefix(s.cfg.Site)} {
		aborted, err := s.cfg.Store.AbortOldUploads(ctx, prefix, before)
		s.cfg.Metrics.found.WithLabelValues(findingStaging).Add(float64(aborted))
		if err != nil {
			return err
		}
	}
	return nil
}
