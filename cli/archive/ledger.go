// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// staleAfter is when the columns of a gateway that no longer reports are no
// longer current: three missed reports and a grace period.
const staleAfter = 3*wire.GatewayReportInterval + 15*time.Second

// Ledger is one instrument's day.
type Ledger struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
	// Received, Stored, Announced and Repeated sum up all writers.
	Received  wire.Totals `json:"received"`
	Stored    wire.Totals `json:"stored"`
	Announced wire.Totals `json:"announced"`
	Repeated  wire.Totals `json:"repeated"`
	// Damaged is what is stored and not what was received any more, as the scrub found.
	Damaged wire.Totals `json:"damaged,omitzero"`
	// Agree is whether nothing is in Differences.
	Agree bool `json:"agree"`
	// Differences say which columns differ, and what that may mean.
	Differences []string `json:"differences,omitempty"`
	// Writers are the gateways, the archivist for stored datagrams and repeats, and
	// partners for what they have.
	Writers []WriterColumns `json:"writers"`
}

// WriterColumns are what one writer of the ledger says.
type WriterColumns struct {
	Writer string `json:"writer"`
	// Stale: the gateway has not reported for a while; what it received since is
	// not in its columns.
	Stale bool `json:"stale"`
	// ReportedAt is when the gateway last reported; absent where it is gone for good.
	ReportedAt *time.Time  `json:"reportedAt,omitempty"`
	Received   wire.Totals `json:"received"`
	Stored     wire.Totals `json:"stored"`
	Announced  wire.Totals `json:"announced"`
	Repeated   wire.Totals `json:"repeated"`
	Damaged    wire.Totals `json:"damaged,omitzero"`
	// Mirrored is what a partner has, of which the writer has the name.
	Mirrored *wire.Totals `json:"mirrored,omitempty"`
}

func (w *WriterColumns) column(step wire.Step) *wire.Totals {
	switch step {
	case wire.StepReceived:
		return &w.Received
	case wire.StepStored:
		return &w.Stored
	case wire.StepAnnounced:
		return &w.Announced
	case wire.StepRepeated:
		return &w.Repeated
	case wire.StepDamaged:
		return &w.Damaged
	case wire.StepMirrored:
		w.Mirrored = &wire.Totals{}
		return w.Mirrored
	default:
		return nil
	}
}

// ReadLedger returns the ledger of the chosen instruments and days, by
// instrument and day.
func ReadLedger(ctx context.Context, js jetstream.JetStream, site string, s *selection, now time.Time) ([]Ledger, error) {
	within, err := s.days()
	if err != nil {
		return nil, err
	}
	reports, err := gatewayReports(ctx, js, site)
	if err != nil {
		return nil, err
	}
	byDay := map[instrumentDay]map[string]*WriterColumns{}
	err = eachEntry(ctx, js, wire.LedgerBucket(site), ">", func(key string, value []byte) error {
		instrument, day, step, writer, err := wire.ParseLedgerKey(key)
		if err != nil || !s.holdsInstrument(instrument) || !within.hold(day) {
			return err
		}
		entry, err := wire.DecodeLedgerEntry(value)
		if err != nil {
			return fmt.Errorf("ledger entry %s: %w", key, err)
		}
		at := instrumentDay{instrument, day}
		if byDay[at] == nil {
			byDay[at] = map[string]*WriterColumns{}
		}
		columns := byDay[at][writer]
		if columns == nil {
			columns = &WriterColumns{Writer: writer}
			columns.reported(reports[writer], now)
			byDay[at][writer] = columns
		}
		if column := columns.column(step); column != nil {
			*column = entry.Sum()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sumUp(byDay), nil
}

func (w *WriterColumns) reported(at, now time.Time) {
	if at.IsZero() {
		return // the archivist, or a pod that is gone: what it wrote is final
	}
	w.ReportedAt = &at
	w.Stale = now.Sub(at) > staleAfter
}

func sumUp(byDay map[instrumentDay]map[string]*WriterColumns) []Ledger {
	var all []Ledger
	for at, writers := range byDay {
		l := Ledger{Instrument: at.instrument, Day: at.day}
		for _, w := range writers {
			l.Received, l.Stored = l.Received.Plus(w.Received), l.Stored.Plus(w.Stored)
			l.Announced, l.Repeated = l.Announced.Plus(w.Announced), l.Repeated.Plus(w.Repeated)
			l.Damaged = l.Damaged.Plus(w.Damaged)
			l.Writers = append(l.Writers, *w)
		}
		slices.SortFunc(l.Writers, func(a, b WriterColumns) int { return cmp.Compare(a.Writer, b.Writer) })
		l.Differences = l.compare()
		l.Agree = len(l.Differences) == 0
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Ledger) int {
		return cmp.Or(cmp.Compare(a.Instrument, b.Instrument), cmp.Compare(a.Day, b.Day))
	})
	return all
}

// compare says where the columns differ.
func (l *Ledger) compare() []string {
	var differences []string
	say := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	for _, w := range l.Writers {
		if w.Stale {
			say("gateway %s has not reported since %s: what it received since is unknown", w.Writer, wire.FormatTime(w.ReportedAt.Truncate(time.Second)))
		}
	}
	l.compareReceipts(say)
	r, s, a := l.Received, l.Stored, l.Announced
	switch {
	case r.Objects > a.Objects:
		say("objects: %d received, %d announced: what is missing waits in the gateways' spools (kubectl get ingestgateways)", r.Objects, a.Objects)
	case r.Objects != a.Objects:
		say("objects: %d received, %d announced", r.Objects, a.Objects)
	case s.Objects != a.Objects:
		say("objects: %d stored, %d announced: the sweep announces within minutes what was stored and not announced", s.Objects, a.Objects)
	case r.ObjectBytes != a.ObjectBytes || s.ObjectBytes != a.ObjectBytes:
		say("bytes of objects: %d received, %d stored, %d announced", r.ObjectBytes, s.ObjectBytes, a.ObjectBytes)
	case r.Digest != a.Digest || s.Digest != a.Digest:
		say("digests: received, stored and announced are not the same objects")
	}
	lost := sumOf(s.Dropped)
	switch {
	case r.Datagrams != a.Datagrams || r.DatagramBytes != a.DatagramBytes:
		say("datagrams: %d (%d bytes) received, %d (%d bytes) announced", r.Datagrams, r.DatagramBytes, a.Datagrams, a.DatagramBytes)
	case l.Instrument == wire.UnknownInstrument: // what lies under no instrument's subject was announced by no gateway
	case s.Datagrams+lost < a.Datagrams:
		say("datagrams: %d of %d are in segments; the others wait for theirs to be cut", s.Datagrams, a.Datagrams-lost)
	case s.Datagrams+lost > a.Datagrams || s.DatagramBytes > a.DatagramBytes || (lost == 0 && s.DatagramBytes < a.DatagramBytes):
		say("datagrams: %d (%d bytes) in segments, %d in none (%s), %d (%d bytes) announced",
			s.Datagrams, s.DatagramBytes, lost, byCause(s.Dropped), a.Datagrams, a.DatagramBytes)
	}
	return differences
}

// compareReceipts says what senders have receipts for and the other columns do not
// show: these agree with one another whatever is lost before the first of them.
func (l *Ledger) compareReceipts(say func(format string, args ...any)) {
	causes := l.Received.Unfinished
	if n := causes[wire.CauseCorrupt]; n > 0 {
		say("objects: %d receipted into a spool and corrupt there (Corrupt): the gateway's log names them, its spool/quarantine has what is left", n)
	}
	if n := causes[wire.CauseSpoolAbandoned]; n > 0 {
		say("objects: %d receipted and lost with the spool of a pod that was given up (SpoolAbandoned)", n)
	}
	// An object that went into the spool under a name that the same bytes had is a
	// repeat, and no longer received, once it is home.
	explained := l.Received.Objects + causes[wire.CauseCorrupt] + causes[wire.CauseSpoolAbandoned] + causes[wire.CauseRepeated]
	if acknowledged := l.Received.Acknowledged; acknowledged > explained {
		say("objects: %d acknowledged, %d received: a gateway that has just started counts what waits in its spool within minutes; what stays is lost, and its senders have receipts",
			acknowledged, l.Received.Objects)
	}
}

func sumOf(counts map[wire.Cause]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// gatewayReports returns when each gateway pod last reported.
func gatewayReports(ctx context.Context, js jetstream.JetStream, site string) (map[string]time.Time, error) {
	reports := map[string]time.Time{}
	err := eachEntry(ctx, js, wire.StatusBucket(site), wire.GatewayStatusKey("*"), func(key string, value []byte) error {
		_, gateway, ok := wire.ParseStatusKey(key)
		if !ok {
			return nil
		}
		status, err := wire.DecodeGatewayStatus(value)
		if err != nil {
			return fmt.Errorf("report %s: %w", key, err)
		}
		reports[gateway] = status.ReportedAt
		return nil
	})
	return reports, err
}

// eachEntry calls f for each entry of a bucket whose key matches.
func eachEntry(ctx context.Context, js jetstream.JetStream, bucket, match string, f func(key string, value []byte) error) error {
	kv, err := js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("NATS has no bucket %s: is the Site ready? See substorm status", bucket)
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	watcher, err := kv.Watch(ctx, match, jetstream.IgnoreDeletes())
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket, err)
	}
	defer func() { _ = watcher.Stop() }() // it ends with the connection at the latest
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, ok := <-watcher.Updates():
			if !ok {
				return fmt.Errorf("read bucket %s: the connection ended", bucket)
			}
			if entry == nil { // all that there was has come
				return nil
			}
			if err := f(entry.Key(), entry.Value()); err != nil {
				return err
			}
		}
	}
}
