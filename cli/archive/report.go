// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Report says what a time brought: what was received of it, what is missing, and who
// fetched how much.
type Report struct {
	Site string   `json:"site"`
	From wire.Day `json:"from"`
	To   wire.Day `json:"to"`
	// ClosedTo is the last day of the ledger that is closed with all before it.
	ClosedTo    wire.Day           `json:"closedTo,omitempty"`
	Instruments []InstrumentReport `json:"instruments"`
	// Other is what was asked of the archive and is about no instrument.
	Other []wire.DownloadCount `json:"other,omitempty"`
	// Partners are those that the ledger of these days names as mirrors.
	Partners []string `json:"partners"`
	// Agree is whether the totals are those of the ledger, and its columns agree.
	Agree bool `json:"agree"`
	// Damage is what is known of these days at this moment.
	Damage *KnownDamage `json:"damage,omitempty"`
}

// InstrumentReport is about one instrument. Counts of what was received are by the day of receipt, as the ledger's; what was expected and
// is missing, by the day of observation.
type InstrumentReport struct {
	Instrument string `json:"instrument"`
	// Expected observations; absent if none are known to have been due.
	Expected int64 `json:"expected,omitempty"`
	// Objects and Datagrams that the archive lists, without duplicates, and their Bytes.
	Objects   uint64 `json:"objects"`
	Datagrams uint64 `json:"datagrams,omitempty"`
	Bytes     uint64 `json:"bytes"`
	// Late are those that are listed as backfill: they came later than cadence.lateAfter was then.
	Late       uint64 `json:"late,omitempty"`
	Duplicates uint64 `json:"duplicates,omitempty"`
	Retracted  uint64 `json:"retracted,omitempty"`
	Purged     uint64 `json:"purged,omitempty"`
	// Expired are those that spec.archive.expiry does not keep any longer.
	Expired uint64 `json:"expired,omitempty"`
	// Damaged objects are not what was received any more, as the scrub found.
	Damaged uint64 `json:"damaged,omitempty"`
	// Coverage is the part of the time with something due that has no gap; absent if nothing was due.
	Coverage *float64 `json:"coverage,omitempty"`
	// Gaps that are open, by cause.
	Gaps map[wire.GapCause]GapSum `json:"gaps,omitempty"`
	// Mirrored is how many of the objects and datagrams each partner confirmed that it
	// has, and Unconfirmed how many purges it was asked for and did not confirm.
	Mirrored    map[string]uint64    `json:"mirrored,omitempty"`
	Unconfirmed map[string]uint64    `json:"unconfirmed,omitempty"`
	Downloads   []wire.DownloadCount `json:"downloads,omitempty"`
	// Differences to the ledger, by day.
	Differences []string `json:"differences,omitempty"`
}

// GapSum sums up gaps.
type GapSum struct {
	Gaps    int     `json:"gaps"`
	Missing int64   `json:"missing"`
	Seconds float64 `json:"seconds"`
}

// ReadReport reads a report of the days of the selection.
func ReadReport(ctx context.Context, store objectstore.Store, js jetstream.JetStream, site string, s *selection, now time.Time) (*Report, error) {
	within, err := s.days()
	if err != nil {
		return nil, err
	}
	r := &Report{Site: site, From: within.first, To: within.last, Partners: []string{}, Agree: true}
	by := map[string]*InstrumentReport{}
	of := func(name string) *InstrumentReport {
		if by[name] == nil {
			by[name] = &InstrumentReport{Instrument: name}
		}
		return by[name]
	}
	if err := r.readListed(ctx, store, js, s, of, now); err != nil {
		return nil, err
	}
	if err := r.readGaps(ctx, js, s, of); err != nil {
		return nil, err
	}
	if err := r.readDownloads(ctx, js, s, of); err != nil {
		return nil, err
	}
	if r.Damage, err = readDamage(ctx, js, site, s); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		r.Instruments = append(r.Instruments, *by[name])
		r.Agree = r.Agree && len(by[name].Differences) == 0
	}
	err = backend.Entries(ctx, js, wire.StatusBucket(site), wire.LedgerStatusKey, func(e backend.Entry) error {
		status, err := wire.Decode[wire.LedgerStatus](e.Data)
		r.ClosedTo = status.ClosedTo
		return err
	})
	return r, err
}

// listed is what the manifests list of a day, as the ledger counts: all objects that ever
// were announced, duplicates, and datagrams in segments.
type listed struct{ all, duplicates, datagrams wire.Totals }

func listedIn(c *manifest.Columns) *listed {
	sum := func(of map[string]wire.Totals) wire.Totals { return wire.LedgerEntry{Incarnations: of}.Sum() }
	return &listed{sum(c.Announced), c.Duplicates, sum(c.Stored)}
}

// readListed reads the manifests, and compares them with the ledger.
func (r *Report) readListed(ctx context.Context, store objectstore.Store, js jetstream.JetStream, s *selection, of func(string) *InstrumentReport, now time.Time) error {
	found := map[instrumentDay]*listed{}
	for list, err := range s.lists(ctx, store, r.Site) {
		if err != nil {
			return err
		}
		var day manifest.Columns
		for rec, err := range manifest.Records(ctx, store, r.Site, list.instrument, list.day) {
			if err != nil {
				return fmt.Errorf("instrument %s, %s: %w", list.instrument, list.day, err)
			}
			day.Add(&rec)
			of(list.instrument).add(&rec)
		}
		found[list] = listedIn(&day)
	}
	ledgers, err := ReadLedger(ctx, js, r.Site, s, now)
	if err != nil {
		return err
	}
	mirrors := map[instrumentDay]map[string]wire.Totals{}
	for i := range ledgers {
		l := &ledgers[i]
		at := instrumentDay{l.Instrument, l.Day}
		in := of(l.Instrument)
		in.Damaged += l.Damaged.Objects
		mirrors[at] = in.addMirrors(l)
		for _, d := range append(l.Differences, l.compareListed(found[at])...) {
			in.Differences = append(in.Differences, fmt.Sprintf("%s: %s", l.Day, d))
		}
		delete(found, at)
	}
	for at, day := range found {
		if day.all.Objects+day.datagrams.Datagrams > 0 {
			in := of(at.instrument)
			in.Differences = append(in.Differences, fmt.Sprintf("%s: %d objects and %d datagrams are listed, and the ledger says nothing of the day",
				at.day, day.all.Objects, day.datagrams.Datagrams))
			slices.Sort(in.Differences)
		}
	}
	return r.readPurges(ctx, js, mirrors, of)
}

// compareListed says where the manifests list other objects than the ledger counts.
func (l *Ledger) compareListed(found *listed) []string {
	if found == nil {
		found = &listed{}
	}
	var differences []string
	say := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	switch a := l.Announced; {
	case found.all.Objects < a.Objects:
		say("objects: %d announced, %d listed: what is new is listed within a minute", a.Objects, found.all.Objects)
	case found.all.Objects > a.Objects:
		say("objects: %d announced, %d listed", a.Objects, found.all.Objects)
	case found.all.ObjectBytes != a.ObjectBytes:
		say("bytes of objects: %d announced, %d listed", a.ObjectBytes, found.all.ObjectBytes)
	case found.all.Digest != a.Digest:
		say("digests: other objects are listed than were announced")
	}
	if found.duplicates.Objects != l.Duplicates.Objects {
		say("duplicates: %d in the ledger, %d listed", l.Duplicates.Objects, found.duplicates.Objects)
	}
	if l.Instrument == wire.UnknownInstrument {
		return differences // what no instrument claims is in no manifest
	}
	if s := l.Stored; found.datagrams.Datagrams != s.Datagrams || found.datagrams.DatagramBytes != s.DatagramBytes {
		say("datagrams: %d (%d bytes) stored, %d (%d bytes) in listed segments", s.Datagrams, s.DatagramBytes, found.datagrams.Datagrams, found.datagrams.DatagramBytes)
	}
	return differences
}

// add counts a listed object.
func (i *InstrumentReport) add(r *wire.Record) {
	count := uint64(1)
	if r.Segment != nil {
		count = r.Segment.Datagrams
	}
	switch {
	case r.State == wire.StateDuplicate:
		i.Duplicates += count
		return
	case r.State == wire.StateRetracted:
		i.Retracted += count
	case r.Expired():
		i.Expired += count
	case r.State == wire.StatePurged:
		i.Purged += count
	}
	if r.Segment != nil {
		i.Datagrams += count
	} else {
		i.Objects++
	}
	i.Bytes += uint64(r.Size)
	if r.Backfill {
		i.Late += count
	}
}

// readGaps sums up what is missing.
func (r *Report) readGaps(ctx context.Context, js jetstream.JetStream, s *selection, of func(string) *InstrumentReport) error {
	days, err := readGaps(ctx, js, r.Site, s)
	if err != nil {
		return err
	}
	due, missing := map[string]float64{}, map[string]float64{}
	for at, d := range days {
		in := of(at.instrument)
		in.Expected += d.Due
		channels := map[string]float64{"": 0}
		for _, g := range d.Gaps {
			if g.ClosedAt != nil {
				continue
			}
			until := d.Until
			if until.Before(g.From) {
				until = g.From
			}
			seconds := g.Ends(until).Sub(g.From).Seconds()
			channels[g.Channel] += seconds
			sum := in.Gaps[g.Cause]
			sum.Gaps, sum.Missing, sum.Seconds = sum.Gaps+1, sum.Missing+g.Missing, sum.Seconds+seconds
			if in.Gaps == nil {
				in.Gaps = map[wire.GapCause]GapSum{}
			}
			in.Gaps[g.Cause] = sum
		}
		due[at.instrument] += float64(d.DueMillis) / 1000
		// If there are several channels, the one that lacks most counts.
		missing[at.instrument] += slices.Max(slices.Collect(maps.Values(channels)))
	}
	for name, seconds := range due {
		if seconds > 0 {
			coverage := max(0, 1-missing[name]/seconds)
			of(name).Coverage = &coverage
		}
	}
	return nil
}

// readDownloads sums up what was asked, by reader and class. A Site of an older operator
// has no such bucket.
func (r *Report) readDownloads(ctx context.Context, js jetstream.JetStream, s *selection, of func(string) *InstrumentReport) error {
	within, err := s.days()
	if err != nil {
		return err
	}
	if _, err := js.KeyValue(ctx, wire.DownloadsBucket(r.Site)); errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	sums := map[string]map[[2]string]wire.DownloadCount{}
	err = backend.Entries(ctx, js, wire.DownloadsBucket(r.Site), ">", func(e backend.Entry) error {
		instrument, day, err := wire.ParseDownloadsKey(e.Key)
		if err != nil || !within.hold(day) || instrument != wire.NoInstrument && !s.holdsInstrument(instrument) {
			return err
		}
		d, err := wire.Decode[wire.Downloads](e.Data)
		if err != nil {
			return fmt.Errorf("downloads %s: %w", e.Key, err)
		}
		if sums[instrument] == nil {
			sums[instrument] = map[[2]string]wire.DownloadCount{}
		}
		for _, c := range d.By {
			who := [2]string{c.Reader, c.Class}
			sums[instrument][who] = c.Plus(sums[instrument][who])
		}
		return nil
	})
	for instrument, by := range sums {
		counts := slices.Collect(maps.Values(by))
		slices.SortFunc(counts, func(a, b wire.DownloadCount) int {
			return strings.Compare(a.Reader+"\x00"+a.Class, b.Reader+"\x00"+b.Class)
		})
		if instrument == wire.NoInstrument {
			r.Other = counts
		} else {
			of(instrument).Downloads = counts
		}
	}
	return err
}

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
	confirmed := map[string]bool{} // the archivist takes them over into the removals later
	err := backend.Entries(ctx, js, wire.CursorBucket(r.Site), wire.MirrorConfirmedKeys("*"), func(e backend.Entry) error {
		confirmed[e.Key] = true
		return nil
	})
	if err != nil {
		return err
	}
	return backend.Entries(ctx, js, wire.CursorBucket(r.Site), wire.RemovalKeys, func(e backend.Entry) error {
		removal, err := wire.Decode[wire.Removal](e.Data)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Key, err)
		}
		for partner, has := range mirrors[instrumentDay{removal.Instrument, removal.Day}] {
			if !removal.Asks(partner, has) || confirmed[wire.MirrorConfirmedKey(partner, removal)] {
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

// mirrorTitles are the titles of the columns of partners; without partners there is one, empty column.
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
		if n, confirmed := i.Mirrored[partner]; confirmed {
			columns[at] = fmt.Sprint(n)
		}
	}
	return strings.Join(columns, "\t")
}

// printUnconfirmed says which purges partners did not confirm.
func (r *Report) printUnconfirmed(w io.Writer) {
	title := "\nPurged, and not confirmed by partners that have it:\n"
	for i := range r.Instruments {
		in := &r.Instruments[i]
		for _, partner := range slices.Sorted(maps.Keys(in.Unconfirmed)) {
			fmt.Fprintf(w, "%s  %s: %s was asked to remove %d objects\n", title, in.Instrument, partner, in.Unconfirmed[partner])
			title = ""
		}
	}
}
