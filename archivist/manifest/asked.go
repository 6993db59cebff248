// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"strings"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// maxAsked messages are read ahead where objects are retracted: at 1 KiB each 2 MiB.
const maxAsked = 2048

// asked has the listed records of the objects that the requests at hand name. A user who retracts a
// day asks for each of its objects, and reading the day for each of them would hold up everything
// else: it is read once for all.
type asked struct {
	ids  map[dayKey]map[string]bool
	days map[dayKey]map[string]standing
}

// standing is what is listed of an object; open says that it is in no closed part yet.
type standing struct {
	wire.Record
	found, open bool
}

// standing returns what the manifests, open parts included, list now of an object that
// is retracted.
func (w *Writer) standing(ctx context.Context, d *day, id string) (standing, error) {
	if w.asked == nil {
		if err := w.gather(ctx); err != nil {
			return standing{}, err
		}
	}
	if s, known := w.asked.days[d.dayKey][id]; known {
		return s, nil
	}
	ids := w.asked.ids[d.dayKey]
	delete(w.asked.ids, d.dayKey)
	if ids == nil {
		ids = make(map[string]bool, 1)
	}
	ids[id] = true
	if w.asked.days[d.dayKey] == nil {
		w.asked.days[d.dayKey] = make(map[string]standing, len(ids))
	}
	if err := w.findStandings(ctx, d, ids, w.asked.days[d.dayKey]); err != nil {
		return standing{}, err
	}
	return w.asked.days[d.dayKey][id], nil
}

// gather finds out which objects the next requests name.
func (w *Writer) gather(ctx context.Context) error {
	for len(w.coming) < maxAsked {
		if _, caughtUp := w.reader.Position(); caughtUp {
			break
		}
		messages, err := w.reader.Next(ctx, readBatch, readWait)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			break
		}
		w.coming = append(w.coming, messages...)
	}
	w.asked = &asked{ids: make(map[dayKey]map[string]bool), days: make(map[dayKey]map[string]standing)}
	for _, m := range w.coming {
		if m.Header.Get(wire.HeaderRefilled) != "" {
			continue
		}
		if !strings.HasPrefix(m.Subject, requestPrefix) {
			continue
		}
		q, err := w.decodeRequest(m)
		if err != nil {
			continue // takeRequest says what is wrong with it
		}
		key := dayKey{q.Instrument, wire.DayOf(q.ReceivedAt)}
		if w.asked.ids[key] == nil {
			w.asked.ids[key] = make(map[string]bool)
		}
		w.asked.ids[key][q.ID] = true
	}
	return nil
}

// findStandings finds what a day lists of objects.
func (w *Writer) findStandings(ctx context.Context, d *day, ids map[string]bool, found map[string]standing) error {
	for id := range ids {
		found[id] = standing{}
	}
	open, err := d.open.all()
	if err != nil {
		return err
	}
	for _, r := range open {
		if ids[r.ID] || found[r.ID].open {
			found[r.ID] = standing{r, true, true}
			delete(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	for r, err := range read.Records(ctx, w.cfg.Store, w.cfg.Site, d.instrument, d.day) {
		if err != nil {
			return err
		}
		if ids[r.ID] {
			found[r.ID] = standing{r, true, false}
			delete(ids, r.ID)
		}
		if len(ids) == 0 {
			return nil
		}
	}
	return nil
}

// noteLine notes a line that is added to the open part of a day.
func (a *asked) noteLine(of dayKey, r wire.Record) {
	if a == nil {
		return
	}
	if _, known := a.days[of][r.ID]; known {
		a.days[of][r.ID] = standing{r, true, true}
	}
}
