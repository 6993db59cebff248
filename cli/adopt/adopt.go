// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// adopt finishes what was begun for the instrument, and then adopts what the flags ask for. It
// first writes down what is to be moved, so that a run that is killed at any point leaves what the
// next run needs to move each object and to count it once.
func (a *adoption) adopt(ctx context.Context) error {
	entry, err := a.declared(ctx)
	if err != nil {
		return err
	}
	begun, err := a.listUnfinished(ctx)
	if err != nil {
		return err
	}
	others := map[string]string{}
	for _, d := range begun {
		if d.Instrument == a.instrument {
			fmt.Fprintf(a.out, "An adoption of %s was cut short: it is finished.\n", d.DecidedAt.Format("2006-01-02 15:04:05"))
			if err := a.carryOut(ctx, d, entry); err != nil {
				return err
			}
			continue
		}
		for _, item := range d.Items {
			others[item.From] = d.Instrument
		}
	}
	all, err := a.find(ctx)
	if err != nil {
		return err
	}
	decided := wire.Adoption{Instrument: a.instrument, DecidedAt: a.now().UTC()}
	for _, f := range all {
		for _, item := range f.items {
			if other := others[item.From]; other != "" {
				return fmt.Errorf("the adoption of %s by Instrument %q was interrupted: run that adoption again first", item.From, other)
			}
			decided.Items = append(decided.Items, item)
		}
	}
	if len(decided.Items) == 0 {
		if len(begun) > len(others) {
			return nil
		}
		return fmt.Errorf("the quarantine holds nothing from %s to port %d: see substorm adopt", a.source, a.port)
	}
	if err := a.decide(ctx, &decided); err != nil {
		return err
	}
	return a.carryOut(ctx, decided, entry)
}

// declared reads what gateways know of the instrument.
func (a *adoption) declared(ctx context.Context) (wire.InstrumentEntry, error) {
	registry, err := a.js.KeyValue(ctx, wire.RegistryBucket(a.site))
	if err != nil {
		return wire.InstrumentEntry{}, fmt.Errorf("registry of Site %s: %w", a.site, err)
	}
	entry, revision, err := stream.Record[wire.InstrumentEntry](ctx, registry, wire.RegistryInstrumentKey(a.instrument))
	if err == nil && revision == 0 {
		err = fmt.Errorf("Site %s has no Instrument %q: apply it first; substorm adopt -o yaml prints one", a.site, a.instrument)
	}
	return entry, err
}

// listUnfinished returns the adoptions that are not done.
func (a *adoption) listUnfinished(ctx context.Context) ([]wire.Adoption, error) {
	var all []wire.Adoption
	for info, err := range a.store.List(ctx, wire.AdoptionPrefix(a.site), "") {
		if err != nil {
			return nil, err
		}
		body, _, err := a.store.Get(ctx, info.Key, objectstore.Range{})
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			return nil, err
		}
		d, err := wire.Decode[wire.Adoption](text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", info.Key, err)
		}
		for _, item := range d.Items {
			if !strings.HasPrefix(item.From, wire.QuarantinePrefix(a.site)) {
				return nil, fmt.Errorf("%s names %s, which is not in the quarantine of this Site: nothing is adopted; remove that adoption if it was not intended", info.Key, item.From)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// decide writes down what is adopted.
func (a *adoption) decide(ctx context.Context, d *wire.Adoption) error {
	h := sha256.New()
	fmt.Fprintln(h, d.Instrument)
	for _, item := range d.Items {
		fmt.Fprintln(h, item.From)
	}
	d.ID = hex.EncodeToString(h.Sum(nil)[:8])
	text, err := wire.Encode(*d)
	if err != nil {
		return err
	}
	err = a.store.Put(ctx, wire.AdoptionKey(a.site, d.ID), bytes.NewReader(text), int64(len(text)),
		objectstore.PutOptions{ContentType: "application/json", CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return nil // another run decided the same just now
	}
	return err
}

// carryOut copies, announces, counts, and only then removes.
func (a *adoption) carryOut(ctx context.Context, d wire.Adoption, entry wire.InstrumentEntry) error {
	records := make([]*wire.Record, len(d.Items)) // nil for what is gone
	var done atomic.Int64
	work, each := errgroup.WithContext(ctx)
	work.SetLimit(lookers)
	for i, item := range d.Items {
		work.Go(func() (err error) {
			records[i], err = a.move(each, d, item, entry)
			n := done.Add(1)
			a.shown.Set(n, int64(len(d.Items)), "%d of %s moved", n, objects(len(d.Items)))
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	moved, size, totals := 0, int64(0), map[wire.Day]wire.Totals{}
	for _, r := range records {
		if r != nil {
			moved, size = moved+1, size+r.Size
			totals[wire.DayOf(r.ReceivedAt)] = totals[wire.DayOf(r.ReceivedAt)].Plus(wire.Totals{Objects: 1, ObjectBytes: uint64(r.Size), Digest: r.Digest})
		}
	}
	if err := a.count(ctx, d.ID, totals); err != nil {
		return err
	}
	for i, item := range d.Items {
		if records[i] == nil {
			continue
		}
		if err := a.store.Delete(ctx, item.From); err != nil {
			return err
		}
	}
	if err := a.store.Delete(ctx, wire.AdoptionKey(a.site, d.ID)); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s (%s) adopted by Instrument %s", objects(moved), humanize.IBytes(uint64(size)), d.Instrument)
	if gone := len(d.Items) - moved; gone > 0 {
		fmt.Fprintf(a.out, "; %d were too old and had been removed", gone)
	}
	fmt.Fprintln(a.out, ".")
	return nil
}

// move copies one thing into the archive and announces it; both may have been
// done before. It returns nil for what is gone.
func (a *adoption) move(ctx context.Context, d wire.Adoption, item wire.Adopted, entry wire.InstrumentEntry) (*wire.Record, error) {
	n := a.notice(d, item, entry)
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		return nil, err
	}
	_, err = a.store.Head(ctx, n.Key)
	if errors.Is(err, objectstore.ErrNotFound) {
		err = a.store.Copy(ctx, item.From, n.Key, objectstore.PutOptions{ContentType: n.MediaType, Metadata: metadata, CreateOnly: true})
		if errors.Is(err, objectstore.ErrExists) {
			err = nil
		}
		if errors.Is(err, objectstore.ErrNotFound) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	m, err := stream.NoticeMessage(n, wire.AdoptWriter)
	if err != nil {
		return nil, err
	}
	if _, err := a.js.PublishMsg(ctx, m); err != nil {
		return nil, fmt.Errorf("announce %s: %w", n.Key, err)
	}
	return &n.Record, nil
}

// notice says that the object is the instrument's, received when it was.
func (a *adoption) notice(d wire.Adoption, item wire.Adopted, entry wire.InstrumentEntry) wire.Notice {
	key := wire.RawKey(a.site, d.Instrument, item.ReceivedAt, item.Digest)
	r := wire.Record{
		ID: key, Key: key, Size: item.Size, Digest: item.Digest, MediaType: entry.MediaType, State: wire.StateCurrent,
		ReceivedAt: item.ReceivedAt, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessUnverified,
		Source: item.Source, Port: item.Port, Gateway: wire.AdoptWriter, Incarnation: d.ID,
	}
	if item.Protocol == wire.ProtocolUDP {
		r.MediaType, r.Source = wire.MediaTypeSegment, ""
	}
	return wire.Notice{Site: a.site, Instrument: d.Instrument, Record: r}
}

// count writes the ledger's column of one adoption: totals, not additions, so
// that it may be done again.
func (a *adoption) count(ctx context.Context, id string, totals map[wire.Day]wire.Totals) error {
	ledger, err := a.js.KeyValue(ctx, wire.LedgerBucket(a.site))
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	for _, day := range slices.Sorted(maps.Keys(totals)) {
		written := totals[day]
		written.Acknowledged = written.Objects
		if err := set(ctx, ledger, wire.LedgerKey(a.instrument, day, wire.StepReceived, wire.AdoptWriter), id, written); err != nil {
			return err
		}
	}
	return nil
}

// set writes one adoption's totals into an entry that others share.
func set(ctx context.Context, ledger jetstream.KeyValue, key, id string, totals wire.Totals) error {
	for {
		entry, revision, err := stream.Record[wire.LedgerEntry](ctx, ledger, key)
		if err != nil {
			return err
		}
		if entry.Incarnations == nil {
			entry.Incarnations = map[string]wire.Totals{}
		}
		entry.Incarnations[id] = totals
		value, err := wire.Encode(entry)
		if err != nil {
			return err
		}
		_, err = ledger.Update(ctx, key, value, revision)
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			continue // another adoption wrote it meanwhile
		}
		if err != nil {
			return fmt.Errorf("write %s of the ledger: %w", key, err)
		}
		return nil
	}
}
