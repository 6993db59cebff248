// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// pushed is a day on its way.
type pushed struct {
	in     wire.InstrumentEntry
	day    wire.Day
	tag    string
	known  KnownDay
	reader access.Reader

	// sum and totals are of all that is selected, once the partner has it.
	sum    mirrorindex.Sum
	totals wire.Totals
	// files are those to be delivered, of the records.
	files   []File
	records []*wire.Record
	// retracted are objects that the partner may have, and is not to have any more.
	retracted []retracted

	// open are files whose end is not known; failed are those that the partner did not get.
	open, failed int
	// complete: all files are in batches.
	complete bool
}

type retracted struct {
	published string
	record    *wire.Record
}

// choose finds out what is selected of a day, and what of that the partner may lack: what came
// since, where all else is as the partner confirmed it; or else all.
func (d *pushed) choose(r *run, held *catalog.Day) {
	var before mirrorindex.Sum
	var all []int
	for i, record := range held.Records {
		switch record.State {
		case wire.StateRetracted, wire.StatePurged:
			if r.Entry.Retractions != wire.MirrorIgnore && d.known.Count > 0 && d.selects(r, record) {
				d.retracted = append(d.retracted, retracted{held.Path(i), record})
			}
			continue
		case wire.StateCurrent:
		default:
			continue
		}
		if !d.selects(r, record) {
			continue
		}
		e := mirrorindex.EntryOf(held.Path(i), record)
		d.sum.Add(&e)
		count(&d.totals, record)
		if !record.ReceivedAt.After(d.known.Last) {
			before.Add(&e)
		}
		all = append(all, i)
	}
	confirmed := !r.Force && !r.VerifyOnly && d.known.Count > 0 && before.Same(d.known.Sum)
	for _, i := range all {
		record := held.Records[i]
		if confirmed && !record.ReceivedAt.After(d.known.Last) {
			continue
		}
		p, ok := r.pathOf(d.in, held.Path(i), record)
		if !ok {
			d.failed++
			r.Logger.Error("an object has no path at the partner", "instrument", d.in.Instrument, "object", record.ID, "template", r.Entry.Template)
			continue
		}
		d.records = append(d.records, record)
		d.files = append(d.files, r.file(p, record))
	}
}

// count adds an object to what the ledger says of a day.
func count(t *wire.Totals, r *wire.Record) {
	if r.Segment != nil {
		t.Datagrams += r.Segment.Datagrams
		t.DatagramBytes += r.Segment.DatagramBytes
		return
	}
	t.Objects++
	t.ObjectBytes += uint64(max(0, r.Size))
	t.Digest = t.Digest.Plus(r.Digest)
}

// selects says whether the partner is to have an object.
func (d *pushed) selects(r *run, record *wire.Record) bool {
	observed := record.ReceivedAt
	if record.ObservedTo != nil {
		observed = *record.ObservedTo
	} else if record.ObservedFrom != nil {
		observed = *record.ObservedFrom
	}
	if access.Decide(access.Archive, d.reader, d.in.Instrument, d.in.Access, observed, r.now) != access.Granted {
		return false
	}
	first, last := record.Observed()
	from, to := r.bounds()
	return (to.IsZero() || first.Before(to)) && !last.Before(from)
}

// pathOf is an object's path at the partner; false where it has none.
func (r *run) pathOf(in wire.InstrumentEntry, published string, record *wire.Record) (string, bool) {
	p := in.Instrument + "/" + published
	if r.template != nil {
		name := record.Name
		if name == "" {
			name = path.Base(published)
		}
		text, err := r.template.Write(naming.Values{
			Time: at(record), Station: in.Station, Instrument: in.Instrument, Name: name,
			ID: wire.ShortID(record.ReceivedAt, record.Digest), Digest: record.Digest.String(),
		})
		if err != nil {
			return "", false
		}
		p = text
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\n\r") || len(part) > 255 {
			return "", false
		}
	}
	return p, true
}

// at is the time that a path tells.
func at(r *wire.Record) time.Time {
	if r.ObservedFrom != nil {
		return *r.ObservedFrom
	}
	return r.ReceivedAt
}

func (r *run) file(p string, record *wire.Record) File {
	return File{
		Path: p, Size: record.Size, Modified: record.ReceivedAt, Digest: record.Digest, MediaType: record.MediaType,
		Open: func(ctx context.Context) (io.ReadCloser, error) { return objectpath.Open(ctx, r.Store, *record) },
	}
}

func short(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:12])
}
