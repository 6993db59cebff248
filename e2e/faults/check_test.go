// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// records are the lines that the manifests have of an instrument.
func (l *lab) records(ctx context.Context, instrument string) ([]wire.Record, error) {
	var all []wire.Record
	for day, err := range manifest.Days(ctx, l.store, site, instrument) {
		if err != nil {
			return nil, err
		}
		for r, err := range manifest.Records(ctx, l.store, site, instrument, day) {
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// checkObjects waits until the archive lists each object of the senders' lists once
// and nothing else. That the bytes are those that were sent, checkTools has verified.
func (l *lab) checkObjects(senders []*sender) {
	l.t.Helper()
	for _, s := range senders {
		for instrument, receipted := range s.receipted {
			l.await(fmt.Sprintf("%s: all %d receipted objects are listed once", instrument, len(receipted)), func(ctx context.Context) error {
				records, err := l.records(ctx, instrument)
				if err != nil {
					return err
				}
				return compareListed(records, receipted)
			})
			l.t.Logf("%s: %d receipted objects are listed once", instrument, len(receipted))
		}
	}
}

func compareListed(records []wire.Record, receipted map[wire.Digest]string) error {
	times := map[wire.Digest]int{}
	unsent := 0
	for _, r := range records {
		if r.State != wire.StateCurrent {
			continue
		}
		if name, sent := receipted[r.Digest]; !sent || name != r.Name {
			unsent++
			continue
		}
		times[r.Digest]++
	}
	twice := 0
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	if missing := len(receipted) - len(times); missing+twice+unsent > 0 {
		return fmt.Errorf("%d of %d are not listed, %d more than once, and %d are listed that nobody sent, or not under that name", missing, len(receipted), twice, unsent)
	}
	return nil
}

// checkDatagrams waits until the segments hold the same datagrams that were ever seen in the
// stream of observations, and fails where one is in them twice or was never sent. It
// returns how many are in segments, by instrument.
func (l *lab) checkDatagrams(senders []*sender, w *witness) map[string]uint64 {
	l.t.Helper()
	stored := map[string]uint64{}
	for _, s := range senders {
		instrument := s.pool.mag()
		var in map[uint64]int
		l.await(instrument+": the datagrams of the stream are in segments", func(ctx context.Context) (err error) {
			if err := w.catchUp(ctx); err != nil {
				return err
			}
			if in, err = l.inSegments(ctx, instrument); err != nil {
				return err
			}
			return w.compare(ctx, instrument, in)
		})
		doubled, unsent := 0, 0
		for n, times := range in {
			if times > 1 {
				doubled++
			}
			if n >= s.datagrams {
				unsent++
			}
		}
		if doubled+unsent > 0 || len(in) == 0 {
			l.t.Errorf("%s: of %d datagrams in segments %d are there more than once, and %d were never sent", instrument, len(in), doubled, unsent)
		}
		l.t.Logf("%s: of %d datagrams that were sent, %d are in segments", instrument, s.datagrams, len(in))
		stored[instrument] = uint64(len(in))
	}
	return stored
}

// inSegments counts the datagrams of an instrument's listed segments, by number.
func (l *lab) inSegments(ctx context.Context, instrument string) (map[uint64]int, error) {
	records, err := l.records(ctx, instrument)
	if err != nil {
		return nil, err
	}
	in := map[uint64]int{}
	for _, r := range records {
		if r.State != wire.StateCurrent {
			continue
		}
		if err := l.countSegment(ctx, instrument, r, in); err != nil {
			return nil, fmt.Errorf("segment %s: %w", r.Key, err)
		}
	}
	return in, nil
}

func (l *lab) countSegment(ctx context.Context, instrument string, r wire.Record, in map[uint64]int) error {
	place := objectstore.All
	if r.InPack() {
		place = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := l.store.Get(ctx, r.Key, place)
	if err != nil {
		return err
	}
	defer body.Close()
	return decode.Datagrams(body, func(payload []byte, _ time.Time) error {
		number, err := numberOf(instrument, payload)
		in[number]++
		return err
	})
}

// checkTools waits until `substorm archive` finds every listed object whole, and the columns of the ledger agree, with
// the senders too. Objects that a kill left in the bucket without a receipt are not listed until the archivist looks
// for them, after ten minutes: after a long run none of them may be left.
func (l *lab) checkTools(senders []*sender, stored map[string]uint64, long bool) {
	l.t.Helper()
	verify := []string{"archive", "verify"}
	if long {
		verify = append(verify, "--age", "0s")
		l.patience, l.tryFor = 30*time.Minute, 10*time.Minute
	}
	l.await("substorm archive verify finds nothing", func(ctx context.Context) error {
		_, err := l.substorm(ctx, verify...)
		return err
	})
	l.await("the columns of the ledger agree", func(ctx context.Context) error {
		said, err := l.substorm(ctx, "archive", "ledger", "-o", "json")
		if err != nil {
			return err
		}
		ledger, err := ledgerOf(said)
		if err != nil {
			return err
		}
		for _, s := range senders {
			instrument := s.pool.mag()
			if err := ledger[instrument].compare(s.datagrams, stored[instrument]); err != nil {
				return fmt.Errorf("%s: %w", instrument, err)
			}
		}
		return nil
	})
}

// columns are an instrument's in the ledger, of all days: what the gateways say that they
// received, and what the archivist says is in segments.
type columns struct{ received, stored wire.Totals }

// ledgerOf reads the ledger, and fails where its columns do not agree.
func ledgerOf(said string) (map[string]columns, error) {
	all := map[string]columns{}
	for days := json.NewDecoder(strings.NewReader(said)); days.More(); {
		var day struct {
			Instrument  string
			Agree       bool
			Differences []string
			Writers     []struct{ Received, Stored wire.Totals }
		}
		if err := days.Decode(&day); err != nil {
			return nil, fmt.Errorf("%w: %s", err, said)
		}
		if !day.Agree {
			return nil, fmt.Errorf("%s: %v", day.Instrument, day.Differences)
		}
		sum := all[day.Instrument]
		for _, w := range day.Writers {
			sum.received, sum.stored = sum.received.Plus(w.Received), sum.stored.Plus(w.Stored)
		}
		all[day.Instrument] = sum
	}
	return all, nil
}

// compare says where the ledger has other datagrams than were sent and are in segments. Those
// that were on their way when a gateway was killed may be in segments; no more than were sent
// reached a gateway.
func (c columns) compare(sent, in uint64) error {
	r, dropped := c.received, uint64(0)
	for _, n := range r.Dropped {
		dropped += n
	}
	switch {
	case c.stored.Datagrams != in || len(c.stored.Dropped) > 0:
		return fmt.Errorf("%d datagrams are in segments, the ledger says %d, and %v in none", in, c.stored.Datagrams, c.stored.Dropped)
	case in < r.Datagrams || in > r.Datagrams+r.Unknown:
		return fmt.Errorf("%d datagrams are in segments, gateways received %d and perhaps %d", in, r.Datagrams, r.Unknown)
	case r.Datagrams+r.Unknown+dropped > sent:
		return fmt.Errorf("%d datagrams were sent, gateways read %d, perhaps %d more, and dropped %v", sent, r.Datagrams, r.Unknown, r.Dropped)
	}
	return nil
}
