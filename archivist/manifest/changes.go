// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"slices"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// A change of an object after it was listed is a new line of its day, which replaces the one before: a newer version of
// its name supersedes it, or a request retracts it.

// namedSpace is how many objects with names are remembered that a newer version may
// supersede soon: at 1 KiB each 512 KiB. Others are looked for in the manifests.
const namedSpace = 512

// named remembers the newest objects that have names, by ID.
type named struct {
	records map[string]wire.Record
	order   []string
}

func newNamed() *named { return &named{records: make(map[string]wire.Record)} }

// noteListed notes an object that is listed.
func (l *named) noteListed(n wire.Notice) {
	if n.Name == "" || n.State != wire.StateCurrent {
		delete(l.records, n.ID)
		return
	}
	if _, known := l.records[n.ID]; !known {
		l.order = append(l.order, n.ID)
	}
	l.records[n.ID] = n.Record
	for len(l.order) > namedSpace {
		delete(l.records, l.order[0])
		l.order = l.order[1:]
	}
}

// supersede lists the version that an object replaces as superseded. If that version is not listed yet, because its notice comes after
// the newer version's, it is remembered.
func (w *Writer) supersede(ctx context.Context, n wire.Notice) error {
	if n.Supersedes == "" || n.Supersedes == n.ID {
		return nil
	}
	found, err := w.supersedeListed(ctx, n, n.Supersedes)
	if err == nil && !found && n.Origin == nil {
		w.superseded.note(n.Supersedes)
	}
	return err
}

// supersedeListed lists an object of a notice's instrument as superseded, if it is listed as current. It says whether it is listed at all.
func (w *Writer) supersedeListed(ctx context.Context, n wire.Notice, id string) (found bool, err error) {
	r, found, err := w.listedRecord(ctx, n, id)
	if err != nil || !found || r.State != wire.StateCurrent {
		return found, err
	}
	d, s, err := w.slot(ctx, n.Instrument, r)
	if err != nil {
		return true, err
	}
	r.Supersede()
	w.change(d, s, r)
	return true, nil
}

// change adds a line that replaces another one to the open part of its day.
func (w *Writer) change(d *day, s *slot, r wire.Record) {
	s.closes = w.closes
	w.add(d, r)
	w.addChange(d, r)
	delete(w.named.records, r.ID)
}

// listedRecord returns what the manifests, open parts included, say now of an
// earlier object of a notice's instrument.
func (w *Writer) listedRecord(ctx context.Context, n wire.Notice, id string) (wire.Record, bool, error) {
	if r, known := w.named.records[id]; known {
		return r, true, nil
	}
	for key, d := range w.days {
		if key.instrument != n.Instrument {
			continue
		}
		if r, found, err := openRecord(d, id); found || err != nil {
			return r, found, err
		}
	}
	of, ok := wire.DayOfID(id)
	if key, packed := wire.KeyOfID(id); !ok && !packed {
		info, err := w.cfg.Store.Head(ctx, key)
		if errors.Is(err, objectstore.ErrNotFound) {
			return wire.Record{}, false, nil
		}
		if err != nil {
			return wire.Record{}, false, err
		}
		there, err := wire.NoticeFromMetadata(key, info.Metadata)
		if err != nil || there.Instrument != n.Instrument {
			return wire.Record{}, false, nil // it is unknown which day lists it
		}
		of, ok = wire.DayOf(there.ReceivedAt), true
	}
	if !ok {
		return wire.Record{}, false, nil
	}
	return w.closedRecord(ctx, n.Instrument, of, id)
}

// openRecord returns the last line of an object in the open part of a day.
func openRecord(d *day, id string) (wire.Record, bool, error) {
	open, err := d.open.all()
	for _, r := range slices.Backward(open) {
		if r.ID == id {
			return r, true, nil
		}
	}
	return wire.Record{}, false, err
}

func (w *Writer) closedRecord(ctx context.Context, instrument string, of wire.Day, id string) (wire.Record, bool, error) {
	for r, err := range read.Records(ctx, w.cfg.Store, w.cfg.Site, instrument, of) {
		if errors.Is(err, wire.ErrMalformed) {
			return w.readableRecord(ctx, dayKey{instrument, of}, id)
		}
		if err != nil {
			return wire.Record{}, false, err
		}
		if r.ID == id {
			return r, true, nil
		}
	}
	return wire.Record{}, false, nil
}
