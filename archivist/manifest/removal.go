// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/holder"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// Removals from the archive are handed on to package retention, as entries of the bucket of cursors.

// remove notes that bytes are to be taken out once the open parts are closed.
func (w *Writer) remove(d *day, r wire.Record) {
	w.removals = append(w.removals, wire.Removal{Instrument: d.instrument, Day: d.day, ID: r.ID, Reason: r.Reason, By: r.ChangedBy, At: r.ChangedAt()})
}

// storedAgain says that the bytes of an object that was purged are there again.
func storedAgain(of dayKey, id, found string) wire.Removal {
	return wire.Removal{Instrument: of.instrument, Day: of.day, ID: id, Found: found,
		Reason: "it was purged, and is stored again", By: wire.ArchivistWriter, At: time.Now().UTC()}
}

// saveRemovals hands on what is to be removed. The parts that list it as purged are
// closed by then: what still has its bytes never looks whole.
func (w *Writer) saveRemovals(ctx context.Context) error {
	for _, r := range w.removals {
		if _, err := writeRemoval(ctx, w.cursors, w.cfg.Lease, r); err != nil {
			return err
		}
	}
	w.removals = w.removals[:0]
	return nil
}

// foundPurged reads what is under the key of an object that was purged. If it is the object's own bytes, they are
// removed again; other bytes, which were stored under the key since, stay.
func (s *Sweeper) foundPurged(ctx context.Context, of dayKey, key string) error {
	if !wire.IsNamedID(key) { // all other keys say whose bytes they are
		return s.removeAgain(ctx, of, key, key)
	}
	n, ok, err := s.notice(ctx, key)
	if err != nil || !ok {
		return err
	}
	r, found, err := s.purgedRecord(ctx, of, key)
	if err != nil || !found {
		return err // its part is still open
	}
	if n.Digest == r.Digest {
		return s.removeAgain(ctx, of, key, key)
	}
	s.cfg.Metrics.found.WithLabelValues(findingOther).Inc()
	s.cfg.Log.Error("keeping other bytes under the key of a purged object: no manifest lists them",
		"instrument", of.instrument, "object", key, "purged", r.Digest, "kept", n.Digest)
	return nil
}

func (s *Sweeper) purgedRecord(ctx context.Context, of dayKey, id string) (wire.Record, bool, error) {
	for r, err := range read.Records(ctx, s.cfg.Store, s.cfg.Site, of.instrument, of.day) {
		if err != nil {
			return wire.Record{}, false, err
		}
		if r.ID == id {
			return r, r.State == wire.StatePurged, nil
		}
	}
	return wire.Record{}, false, nil
}

// removeAgain hands on what the sweep found of an object that was purged.
func (s *Sweeper) removeAgain(ctx context.Context, of dayKey, id, found string) error {
	whole := wire.Removal{Instrument: of.instrument, Day: of.day}
	if goes, err := hasKey(ctx, s.cfg.JetStream, s.cursors.Bucket(), whole.Key()); err != nil || goes {
		return err // all of the day is being removed
	}
	news, err := writeRemoval(ctx, s.cursors, s.cfg.Lease, storedAgain(of, id, found))
	if news {
		s.cfg.Metrics.found.WithLabelValues(findingPurged).Inc()
	}
	return err
}

// writeRemoval writes a removal, or adds it to the one that is there, and says whether that
// was news.
func writeRemoval(ctx context.Context, cursors jetstream.KeyValue, lease holder.Lease, r wire.Removal) (news bool, err error) {
	key := r.Key()
	for {
		if err := lease.Check(); err != nil {
			return false, err
		}
		value, err := wire.Encode(r)
		if err != nil {
			return false, err
		}
		_, err = cursors.Create(ctx, key, value)
		if errors.Is(err, jetstream.ErrKeyExists) {
			news, err = addTo(ctx, cursors, key, r)
		} else {
			news = err == nil
		}
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists):
			// It was done just now, or a partner confirmed it.
		case err != nil:
			return false, fmt.Errorf("write %s of %s: %w", key, cursors.Bucket(), err)
		default:
			return news, nil
		}
	}
}

func addTo(ctx context.Context, cursors jetstream.KeyValue, key string, r wire.Removal) (news bool, err error) {
	e, err := cursors.Get(ctx, key)
	if err != nil {
		return false, err
	}
	waiting, err := wire.Decode[wire.Removal](e.Value())
	if errors.Is(err, wire.ErrNewerFormat) {
		return false, err
	}
	if err == nil { // otherwise no other process can interpret it either
		if r, news = mergeRemovals(waiting, r); !news {
			return false, nil
		}
	}
	value, err := wire.Encode(r)
	if err != nil {
		return false, err
	}
	_, err = cursors.Update(ctx, key, value, e.Revision())
	return err == nil, err
}

// mergeRemovals adds to a removal that waits another one of the same object: it is requested once more, or
// its bytes were found again. The user who asked for it and the partners that confirmed it stay,
// because the removal waits for partners.
func mergeRemovals(waiting, added wire.Removal) (both wire.Removal, news bool) {
	both = waiting
	if waiting.By == wire.ArchivistWriter && added.By != wire.ArchivistWriter {
		both.Reason, both.By, both.At = added.Reason, added.By, added.At
		news = true
	}
	if added.Found != "" && added.Found != waiting.Found {
		both.Found = added.Found
		news = true
	}
	return both, news
}
