// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/binary"
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
	for _, r := range records {
		if r.State == wire.StateCurrent {
			times[r.Digest]++
		}
	}
	missing, twice, unsent := 0, 0, 0
	for digest := range receipted {
		switch times[digest] {
		case 0:
			missing++
		case 1:
		default:
			twice++
		}
	}
	for digest := range times {
		if _, ok := receipted[digest]; !ok {
			unsent++
		}
	}
	if missing+twice+unsent > 0 {
		return fmt.Errorf("%d of %d are not listed, %d more than once, and %d are listed that nobody sent", missing, len(receipted), twice, unsent)
	}
	return nil
}

// checkDatagrams waits until the segments hold all that the stream of observations
// holds, and fails where one datagram is in them twice or was never sent.
func (l *lab) checkDatagrams(senders []*sender) {
	l.t.Helper()
	for _, s := range senders {
		instrument := s.pool.mag()
		var in map[uint64]int
		l.await(instrument+": each announced datagram is in a segment", func(ctx context.Context) (err error) {
			if in, err = l.inSegments(ctx, instrument); err != nil {
				return err
			}
			announced, err := l.announced(ctx, instrument)
			if err == nil && len(in) < len(announced) {
				err = fmt.Errorf("%d of %d are", len(in), len(announced))
			}
			return err
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
	}
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
		if err := l.countSegment(ctx, r, in); err != nil {
			return nil, fmt.Errorf("segment %s: %w", r.Key, err)
		}
	}
	return in, nil
}

func (l *lab) countSegment(ctx context.Context, r wire.Record, in map[uint64]int) error {
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
		in[binary.BigEndian.Uint64(payload[len(payload)-8:])]++
		return nil
	})
}

// announced are the numbers of the datagrams in the stream of observations.
func (l *lab) announced(ctx context.Context, instrument string) (map[uint64]bool, error) {
	stream, err := l.js.Stream(ctx, wire.ObservationStream(site))
	if err != nil {
		return nil, err
	}
	all := map[uint64]bool{}
	last := stream.CachedInfo().State.LastSeq
	for seq := stream.CachedInfo().State.FirstSeq; seq > 0 && seq <= last; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", seq, err)
		}
		if !strings.HasPrefix(m.Subject, wire.ObservationSubject(site, instrument, "raw")) {
			continue
		}
		for d, err := range wire.Datagrams(m.Data) {
			if err != nil {
				return nil, err
			}
			all[binary.BigEndian.Uint64(d.Payload[len(d.Payload)-8:])] = true
		}
	}
	return all, nil
}

// checkTools waits until `substorm archive` finds every listed object whole, and the
// columns of the ledger agree. What a kill left in the bucket without a receipt is not
// listed until the archivist looks for it, after ten minutes: after a long run nothing
// may be left of that.
func (l *lab) checkTools(long bool) {
	l.t.Helper()
	verify := []string{"archive", "verify"}
	if long {
		verify = append(verify, "--age", "0s")
		l.patience, l.tryFor = 30*time.Minute, 10*time.Minute
	}
	l.await("substorm archive verify finds nothing", func(ctx context.Context) error {
		said, err := l.substorm(ctx, verify...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
	l.await("the columns of the ledger agree", func(ctx context.Context) error {
		said, err := l.substorm(ctx, "archive", "ledger", "-o", "json")
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return ledgerAgrees(said)
	})
}

func ledgerAgrees(said string) error {
	days := json.NewDecoder(strings.NewReader(said))
	count := 0
	for days.More() {
		var day struct {
			Instrument  string
			Agree       bool
			Differences []string
		}
		if err := days.Decode(&day); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		if count++; !day.Agree {
			return fmt.Errorf("%s: %v", day.Instrument, day.Differences)
		}
	}
	if count == 0 {
		return fmt.Errorf("the ledger has nothing: %s", said)
	}
	return nil
}
