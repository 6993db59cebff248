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

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/wire"
)

// staleAfter is when the columns of a gateway that no longer reports are no
// longer current: three missed reports and a grace period.
const staleAfter = 3*wire.GatewayReportInterval + 15*time.Second

// Ledger is one instrument's day.
type Ledger struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
	// Received, Stored, Announced and Duplicates sum up all writers. Received is completed by
	// what is announced, see wire.Reconcile. Objects are announced when they are stored, so
	// those of Stored are those of Announced; a datagram is announced when it is received.
	Received   wire.Totals `json:"received"`
	Stored     wire.Totals `json:"stored"`
	Announced  wire.Totals `json:"announced"`
	Duplicates wire.Totals `json:"duplicates"`
	// Damaged is what is stored and not what was received any more, as the scrub found.
	Damaged wire.Totals `json:"damaged,omitzero"`
	// Agree is whether nothing is in Differences.
	Agree bool `json:"agree"`
	// Differences say which columns differ, and what that may mean.
	Differences []string `json:"differences,omitempty"`
	// streamMade is when the stream of observations was made: what another one held before is gone.
	streamMade time.Time
	// Writers are the gateways for what they received, the archivist for what is announced,
	// stored and repeated, and partners for what they have.
	Writers []WriterColumns `json:"writers"`
}

// WriterColumns are what one writer of the ledger says.
type WriterColumns struct {
	Writer string `json:"writer"`
	// Stale: the gateway has not reported for a while, or stopped before all that it
	// counted was written; what it received since is not in its columns.
	Stale bool `json:"stale"`
	// Stopped: the gateway was drained. Its columns are complete, unless they are Stale.
	Stopped bool `json:"stopped,omitempty"`
	// ReportedAt is when the gateway last reported; absent where it is gone for good.
	ReportedAt *time.Time  `json:"reportedAt,omitempty"`
	Received   wire.Totals `json:"received"`
	Stored     wire.Totals `json:"stored"`
	Announced  wire.Totals `json:"announced"`
	Duplicates wire.Totals `json:"duplicates"`
	Damaged    wire.Totals `json:"damaged,omitzero"`
	// Mirrored is what a partner has, if the writer is named after a partner: for a reader that pulls, the name follows reader_.
	Mirrored *wire.Totals `json:"mirrored,omitempty"`

	// received and announced are by incarnation.
	received, announced map[string]wire.Totals
}

func (w *WriterColumns) column(step wire.Step) *wire.Totals {
	switch step {
	case wire.StepReceived:
		return &w.Received
	case wire.StepStored:
		return &w.Stored
	case wire.StepAnnounced:
		return &w.Announced
	case wire.StepDuplicates:
		return &w.Duplicates
	case wire.StepDamaged:
		return &w.Damaged
	case wire.StepMirrored, wire.StepPulled:
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
	err = backend.Entries(ctx, js, wire.LedgerBucket(site), ">", func(e backend.Entry) error {
		instrument, day, step, writer, err := wire.ParseLedgerKey(e.Key)
		if err != nil || !s.holdsInstrument(instrument) || !within.hold(day) {
			return err
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Data)
		if err != nil {
			return fmt.Errorf("ledger entry %s: %w", e.Key, err)
		}
		if step == wire.StepPulled { // a partner may have the reader's name
			writer = wire.PullerName(writer)
		}
		at := instrumentDay{instrument, day}
		if byDay[at] == nil {
			byDay[at] = map[string]*WriterColumns{}
		}
		columns := byDay[at][writer]
		if columns == nil {
			columns = &WriterColumns{Writer: writer}
			if report, known := reports[writer]; known { // else the archivist, or a pod that was given up: what it wrote is final
				columns.reported(report, now)
			}
			byDay[at][writer] = columns
		}
		if column := columns.column(step); column != nil {
			*column = entry.Sum()
		}
		switch step {
		case wire.StepReceived:
			columns.received = entry.Incarnations
		case wire.StepAnnounced:
			columns.announced = entry.Incarnations
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var made time.Time
	switch observations, err := js.Stream(ctx, wire.ObservationStream(site)); {
	case err == nil:
		made = observations.CachedInfo().Created
	case !errors.Is(err, jetstream.ErrStreamNotFound): // it is recreated within seconds
		return nil, fmt.Errorf("stream %s: %w", wire.ObservationStream(site), err)
	}
	return sumUp(byDay, made), nil
}

func (w *WriterColumns) reported(last wire.GatewayStatus, now time.Time) {
	w.ReportedAt, w.Stopped = &last.ReportedAt, last.Stopped
	w.Stale = last.Unwritten || !last.Stopped && now.Sub(last.ReportedAt) > staleAfter
}

func sumUp(byDay map[instrumentDay]map[string]*WriterColumns, streamMade time.Time) []Ledger {
	var all []Ledger
	for at, writers := range byDay {
		l := Ledger{Instrument: at.instrument, Day: at.day, streamMade: streamMade}
		received, announced := map[string]wire.Totals{}, map[string]wire.Totals{}
		for _, w := range writers {
			addTo(received, w.received)
			addTo(announced, w.announced)
			l.Stored, l.Announced = l.Stored.Plus(w.Stored), l.Announced.Plus(w.Announced)
			l.Duplicates, l.Damaged = l.Duplicates.Plus(w.Duplicates), l.Damaged.Plus(w.Damaged)
			l.Writers = append(l.Writers, *w)
		}
		l.Received = wire.Reconcile(received, announced, l.Stored)
		l.Stored.Objects, l.Stored.ObjectBytes, l.Stored.Digest = l.Announced.Objects, l.Announced.ObjectBytes, l.Announced.Digest
		l.Announced.Datagrams, l.Announced.DatagramBytes = l.Received.Datagrams, l.Received.DatagramBytes
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

// addTo adds totals by incarnation to sums. An incarnation has one gateway, except for import's, and for a pod that was recreated while
// the old one continued.
func addTo(sums, of map[string]wire.Totals) {
	for incarnation, t := range of {
		sums[incarnation] = sums[incarnation].Plus(t)
	}
}

// compare says where the columns differ.
func (l *Ledger) compare() []string {
	var differences []string
	say := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	for _, w := range l.Writers {
		switch {
		case w.Stale && w.Stopped:
			say("gateway %s stopped at %s before all that it counted was written: it counts the rest when it comes back, or is given up (substorm spool abandon %s)",
				w.Writer, wire.FormatTime(w.ReportedAt.Truncate(time.Second)), w.Writer)
		case w.Stale:
			say("gateway %s has not reported since %s: what it received since is unknown until it comes back, or is given up (substorm spool abandon %s)",
				w.Writer, wire.FormatTime(w.ReportedAt.Truncate(time.Second)), w.Writer)
		}
	}
	l.compareReceipts(say)
	l.compareObjects(say)
	l.compareDatagrams(say)
	return differences
}

// compareObjects says where other objects are listed than were received, those apart that are
// known to be lost.
func (l *Ledger) compareObjects(say func(format string, args ...any)) {
	r, a := l.Received, l.Announced
	due := r.Objects - min(r.Resolved, r.Objects)
	switch {
	case r.Resolved > r.Objects:
		say("objects: %d received, and %d of them said to be lost or put into quarantine: see the gateways' logs", r.Objects, r.Resolved)
	case due > a.Objects:
		say("objects: %d received, %d announced: what is new is listed within a minute, the rest waits in the gateways' spools (kubectl get ingestgateways), "+
			"or is stored and in no manifest (substorm archive verify names it)", due, a.Objects)
	case due < a.Objects:
		say("objects: %d received, %d announced", due, a.Objects)
	case r.ObjectBytes-r.ResolvedBytes != a.ObjectBytes:
		say("bytes of objects: %d received, %d announced", r.ObjectBytes-r.ResolvedBytes, a.ObjectBytes)
	case r.Digest != a.Digest:
		say("digests: received and announced are not the same objects")
	}
}

// compareDatagrams says where other datagrams are in segments, or known to be in none, than
// were received.
func (l *Ledger) compareDatagrams(say func(format string, args ...any)) {
	if l.Instrument == wire.UnknownInstrument {
		return // what lies under no instrument's subject was received by no gateway
	}
	r, s := l.Received, l.Stored
	lost := sumOf(s.Dropped)
	switch {
	case s.Datagrams+lost < r.Datagrams:
		say("datagrams: %d of %d are in segments; the others %s", s.Datagrams, r.Datagrams-lost, l.othersWait())
	case s.Datagrams+lost > r.Datagrams || s.DatagramBytes > r.DatagramBytes || (lost == 0 && s.DatagramBytes < r.DatagramBytes):
		say("datagrams: %d (%d bytes) in segments, %d in none (%s), %d (%d bytes) received",
			s.Datagrams, s.DatagramBytes, lost, byCause(s.Dropped), r.Datagrams, r.DatagramBytes)
	}
}

// othersWait says what becomes of datagrams that are in no segment.
func (l *Ledger) othersWait() string {
	start, err := l.Day.Start()
	if err != nil || !l.streamMade.After(start) {
		return "wait for theirs to be cut"
	}
	return fmt.Sprintf("wait for theirs to be cut, or were lost with the stream of observations if there was one before this of %s",
		wire.FormatTime(l.streamMade.UTC().Truncate(time.Second)))
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
	// The receipt of a duplicate is counted with those of objects.
	explained := l.Received.Objects + causes[wire.CauseDuplicate]
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

// gatewayReports returns what each gateway pod last reported.
func gatewayReports(ctx context.Context, js jetstream.JetStream, site string) (map[string]wire.GatewayStatus, error) {
	reports := map[string]wire.GatewayStatus{}
	err := backend.Entries(ctx, js, wire.StatusBucket(site), wire.GatewayStatusKey("*"), func(e backend.Entry) error {
		_, gateway, ok := wire.ParseStatusKey(e.Key)
		if !ok {
			return nil
		}
		status, err := wire.Decode[wire.GatewayStatus](e.Data)
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key, err)
		}
		reports[gateway] = status
		return nil
	})
	return reports, err
}
