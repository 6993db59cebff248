// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/wire"
)

// addMirrors adds what partners have of a day, and returns it by partner.
func (i *InstrumentReport) addMirrors(l *Ledger) map[string]wire.Totals {
	var has map[string]wire.Totals
	for _, w := range l.Writers {
		if w.Mirrored == nil {
			continue
		}
		if has == nil {
			has = map[string]wire.Totals{}
		}
		has[w.Writer] = *w.Mirrored
		if i.Mirrored == nil {
			i.Mirrored = map[string]uint64{}
		}
		i.Mirrored[w.Writer] += w.Mirrored.Objects + w.Mirrored.Datagrams
	}
	return has
}

// readPurges names the partners, and counts the purges that they did not confirm.
func (r *Report) readPurges(ctx context.Context, js jetstream.JetStream, mirrors map[instrumentDay]map[string]wire.Totals, of func(string) *InstrumentReport) error {
	partners := map[string]bool{}
	for _, has := range mirrors {
		for partner := range has {
			partners[partner] = true
		}
	}
	if len(partners) == 0 {
		return nil
	}
	r.Partners = slices.Sorted(maps.Keys(partners))
	return backend.Entries(ctx, js, wire.CursorBucket(r.Site), wire.RemovalKeys, func(e backend.Entry) error {
		removal, err := wire.Decode[wire.Removal](e.Data)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Key, err)
		}
		for partner, has := range mirrors[instrumentDay{removal.Instrument, removal.Day}] {
			if !removal.Asks(partner, has) {
				continue
			}
			in := of(removal.Instrument)
			if in.Unconfirmed == nil {
				in.Unconfirmed = map[string]uint64{}
			}
			in.Unconfirmed[partner]++
		}
		return nil
	})
}

// mirrorTitles are the titles of the columns of partners; without any there is one that
// is empty.
func (r *Report) mirrorTitles() string {
	if len(r.Partners) == 0 {
		return "MIRRORED"
	}
	titles := make([]string, len(r.Partners))
	for i, partner := range r.Partners {
		titles[i] = "MIRRORED " + partner
	}
	return strings.Join(titles, "\t")
}

// mirrored are the columns of partners.
func (i *InstrumentReport) mirrored(partners []string) string {
	if len(partners) == 0 {
		return "-"
	}
	columns := make([]string, len(partners))
	for at, partner := range partners {
		columns[at] = "-"
		if n, is := i.Mirrored[partner]; is {
			columns[at] = fmt.Sprint(n)
		}
	}
	return strings.Join(columns, "\t")
}

// printUnconfirmed says which purges partners did not confirm.
func (r *Report) printUnconfirmed(w io.Writer) error {
	var out strings.Builder
	for i := range r.Instruments {
		in := &r.Instruments[i]
		for _, partner := range slices.Sorted(maps.Keys(in.Unconfirmed)) {
			fmt.Fprintf(&out, "  %s: %s was asked to remove %d objects\n", in.Instrument, partner, in.Unconfirmed[partner])
		}
	}
	if out.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nPurged, and not confirmed by partners that have it:\n%s", out.String())
	return err
}
