// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// pendingDuplicate is a duplicate that goes once the open parts are closed.
type pendingDuplicate struct {
	wire.Notice
	// first: no line listed the object before.
	first bool
}

// decide marks a notice that duplicates an earlier object as a duplicate. Listed is what is listed of its slot. A segment
// is never one, and an object that has a name keeps it.
func (w *Writer) decide(ctx context.Context, listed *slot, n *wire.Notice) error {
	if n.Segment != nil || n.Name != "" {
		return nil
	}
	id, receivedAt, found := "", time.Time{}, false
	if window := w.repeatWindow(n.Instrument); window > 0 {
		id, receivedAt, found = w.index.find(n.Instrument, n.Digest, n.ReceivedAt, window, w.earliestOriginal(n))
	}
	spooled := wire.SpooledID(*n)
	state := listed.ids[read.HashID(spooled)]
	again := n.ID != spooled && state != unlisted
	if again && state == current && !found { // however far apart equal objects may be, this is the same one
		id, receivedAt, found = spooled, n.ReceivedAt, true
	}
	if !found || id == n.ID {
		return nil
	}
	n.StoredAgain = again || n.ID == spooled && ofOneReception(id, receivedAt, n)
	stays, err := w.originals.stays(ctx, id, *n)
	if errors.Is(err, wire.ErrMalformed) {
		return nil // it is unknown where the original is: this one stays
	}
	if err != nil {
		return err
	}
	if !stays {
		w.cfg.Log.Warn("keeping a duplicate: the earlier object is gone from the store, or damaged",
			"instrument", n.Instrument, "object", n.ID, "earlier", id)
		w.noteLost(id, receivedAt, *n)
		return nil
	}
	n.State, n.DuplicateOf = wire.StateDuplicate, id
	w.duplicates = append(w.duplicates, pendingDuplicate{Notice: *n, first: true})
	return nil
}

// ofOneReception says whether a member of a pack is the object that comes out of the spool of the gateway that made the pack: a pack whose
// store call failed may be there nevertheless, and the sweep announces what it holds if it was not reported as failed.
func ofOneReception(id string, receivedAt time.Time, n *wire.Notice) bool {
	key, packed := wire.KeyOfID(id)
	if !packed {
		return false
	}
	pack, err := wire.ParsePackKey(key)
	return err == nil && pack.Writer == n.Gateway && receivedAt.Equal(n.ReceivedAt.Truncate(time.Millisecond))
}

// repeatWindow returns how far apart equal objects are duplicates; 0 if they are real, or if that
// is unknown.
func (w *Writer) repeatWindow(instrument string) time.Duration {
	if w.cfg.Known != nil && !w.cfg.Known(instrument) {
		return 0
	}
	return w.cfg.RepeatWindow(instrument)
}

// earliestOriginal returns since when an original was received that is kept for as long as an object:
// where days expire, one of an earlier day goes before it.
func (w *Writer) earliestOriginal(n *wire.Notice) time.Time {
	if w.cfg.Expires == nil || !w.cfg.Expires(n.Instrument) {
		return time.Time{}
	}
	return n.ReceivedAt.UTC().Truncate(24 * time.Hour)
}

// markAgain continues with a duplicate that is listed already.
func (w *Writer) markAgain(ctx context.Context, d *day, n wire.Notice) error {
	if _, open, err := openRecord(d, n.ID); open || err != nil {
		return err // open: a duplicate of the notice itself
	}
	r, err := duplicateRecord(ctx, w.cfg.Store, w.cfg.Site, d.dayKey, n.ID)
	if errors.Is(err, wire.ErrMalformed) {
		return nil // the sweep's work, once the day can be read
	}
	if err == nil && r.ID == n.ID {
		n.Record = r
		w.duplicates = append(w.duplicates, pendingDuplicate{Notice: n})
	}
	return err
}

// duplicateRecord finds a duplicate in the closed parts of a day, or
// nothing.
func duplicateRecord(ctx context.Context, store objectstore.Store, site string, of dayKey, id string) (wire.Record, error) {
	files, err := read.List(ctx, store, site, of.instrument, of.day)
	if err != nil {
		return wire.Record{}, err
	}
	for r, err := range files.Lines(ctx, store) {
		if err != nil {
			return wire.Record{}, err
		}
		if r.ID == id && r.State == wire.StateDuplicate {
			return r, nil
		}
	}
	return wire.Record{}, nil
}

// removeDuplicate says that a duplicate goes, and returns its object if that is to be deleted then.
// Its record in a closed part comes first: whatever happens in between, the object is listed once.
func removeDuplicate(ctx context.Context, cfg duplicateConfig, n wire.Notice) (*deletion.Object, error) {
	stays, err := cfg.originals.stays(ctx, n.DuplicateOf, n)
	if err != nil {
		return nil, err
	}
	if stays {
		gone, err := cfg.removed.removesOriginal(ctx, n)
		if err != nil {
			return nil, err
		}
		stays = !gone
	}
	if !stays {
		return nil, announceOrphan(ctx, cfg, n)
	}
	ours := !n.InPack() && wire.IsOurs(n.Key) // else its bytes go with the pack, or are not ours to delete
	if ours {
		if orphan, holds, err := cfg.orphanAt(ctx, n); err != nil || holds {
			cfg.Log.Debug("keeping the bytes of a duplicate: they are listed as those of an object of its own", "instrument", n.Instrument, "object", n.ID, "listed", orphan)
			return nil, err
		}
	}
	if err := cfg.Lease.Check(); err != nil {
		return nil, err
	}
	if !cfg.deleter.Refused(n.Key) { // else it is published
		if _, err := publish(ctx, cfg.JetStream, n, cfg.Pod); err != nil || !ours {
			return nil, err
		}
	}
	return &deletion.Object{Key: n.Key, Reason: wire.DeletedDuplicate, Instrument: n.Instrument, Instead: n.DuplicateOf}, nil
}

// orphanOf is a duplicate as it is announced where its original is gone.
func orphanOf(n wire.Notice) wire.Notice {
	own := n
	own.ID, own.State, own.DuplicateOf = wire.OrphanID(n), wire.StateCurrent, ""
	return own
}

// orphanAt says whether a duplicate was announced as an object of its own before, when its
// original was gone, and its bytes are listed as those of that object still. The original may
// have been restored since.
func (c *duplicateConfig) orphanAt(ctx context.Context, n wire.Notice) (id string, holds bool, err error) {
	own := orphanOf(n)
	if is, err := c.listing(ctx, own); err != nil || is != current {
		return own.ID, false, err
	}
	for r, err := range read.Records(ctx, c.Store, n.Site, n.Instrument, wire.DayOf(n.ReceivedAt)) {
		if err != nil {
			return own.ID, false, err
		}
		if r.ID == own.ID {
			return own.ID, r.Key == n.Key, nil // compaction may have packed it
		}
	}
	return own.ID, true, nil // its part is still open
}

// announceOrphan announces a duplicate whose original is gone, or is to be removed, as an object of its own: its
// line says for good that it is a duplicate, so that it gets another ID.
func announceOrphan(ctx context.Context, cfg duplicateConfig, n wire.Notice) error {
	own := orphanOf(n)
	if is, err := cfg.listing(ctx, own); err != nil || is != unlisted {
		return err
	}
	cfg.Log.Error("the original of a duplicate is gone from the store, or damaged, or is to be removed: announcing the duplicate as an object of its own",
		"instrument", n.Instrument, "object", n.ID, "earlier", n.DuplicateOf, "announced", own.ID)
	if err := cfg.Lease.Check(); err != nil {
		return err
	}
	_, err := publish(ctx, cfg.JetStream, own, cfg.Pod)
	return err
}

type duplicateConfig struct {
	holder.Base

	deleter *deletion.Deleter
	// listing says what the manifests, open parts included, list of an object.
	listing func(ctx context.Context, n wire.Notice) (listing, error)

	originals *originals
	removed   removed
}

// publish returns whether the stream took the notice; it does not take one that
// it took in the last two minutes.
func publish(ctx context.Context, js jetstream.JetStream, n wire.Notice, pod string) (taken bool, err error) {
	m, err := stream.NoticeMessage(n, pod)
	if err != nil {
		return false, err
	}
	ack, err := js.PublishMsg(ctx, m)
	if err != nil {
		return false, fmt.Errorf("publish the notice %s: %w", n.MessageID(), err)
	}
	return !ack.Duplicate, nil
}
