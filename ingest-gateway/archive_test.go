// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// notices returns all notices on the stream, in order.
func (l *lab) notices(t *testing.T) []wire.Notice {
	t.Helper()
	stream, err := l.js.Stream(t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var notices []wire.Notice
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.Decode[wire.Notice](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if id := m.Header.Get(wire.HeaderMessageID); id != n.MessageID() || m.Header.Get(wire.HeaderID) != id {
			t.Errorf("the notice of %s has the id %q", n.Key, id)
		}
		notices = append(notices, n)
	}
	return notices
}

// keys returns the keys in the bucket under a prefix.
func (l *lab) keys(t *testing.T, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range l.store.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// digestOf reads the bytes of an object, and returns their digest and number.
func (l *lab) digestOf(t *testing.T, r wire.Record) (wire.Digest, int64) {
	t.Helper()
	place := objectstore.All
	if r.InPack() {
		place = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := l.store.Get(t.Context(), r.Key, place)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	h := sha256.New()
	n, err := io.Copy(h, body)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Digest(h.Sum(nil)), n
}

// stored returns what the bucket says of an instrument's objects, by ID, those in packs
// included, but for packs that a gateway reports as failed: the archivist removes them.
func (l *lab) stored(t *testing.T, instrument string) map[string]wire.Notice {
	t.Helper()
	found := map[string]wire.Notice{}
	for _, key := range l.keys(t, wire.InstrumentPrefix(l.site, instrument)) {
		info, err := l.store.Head(t.Context(), key)
		if errors.Is(err, objectstore.ErrNotFound) && !slices.Contains(l.keys(t, key), key) {
			continue // deleted between the list and the look; what should be there is missing in found
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.NoticeFromMetadata(key, info.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		found[n.ID] = n
	}
	status, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]bool{}
	err = stream.Entries(t.Context(), l.js, status, wire.FailedPacksKeys, func(e jetstream.KeyValueEntry) error {
		report, err := wire.DecodeFailedPacks(e.Key(), e.Value())
		for _, key := range report.Packs {
			failed[key] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range l.store.List(t.Context(), wire.PacksPrefix(l.site), "") {
		if err != nil {
			t.Fatal(err)
		}
		if failed[info.Key] {
			continue
		}
		for n, err := range pack.Members(t.Context(), l.store, info.Key, info.Size) {
			if err != nil {
				t.Fatal(err)
			}
			if n.Instrument == instrument {
				found[n.ID] = n
			}
		}
	}
	return found
}

// ledger returns a column of the ledger, of all gateways and today and yesterday, as `substorm archive ledger` prints
// it, but for received objects that are resolved: those are not counted.
func (l *lab) ledger(t *testing.T, instrument string, step wire.Step) wire.Totals {
	t.Helper()
	sums := l.columns(t, instrument)
	sum := func(of wire.Step) wire.Totals { return wire.LedgerEntry{Incarnations: sums[of]}.Sum() }
	announced, stored := sum(wire.StepAnnounced), sum(wire.StepStored)
	received := wire.Reconcile(sums[wire.StepReceived], sums[wire.StepAnnounced], stored)
	switch step {
	case wire.StepReceived:
		received.Objects -= received.Resolved
		received.ObjectBytes -= received.ResolvedBytes
		return received
	case wire.StepAnnounced:
		announced.Datagrams, announced.DatagramBytes = received.Datagrams, received.DatagramBytes
		return announced
	case wire.StepStored:
		stored.Objects, stored.ObjectBytes, stored.Digest = announced.Objects, announced.ObjectBytes, announced.Digest
		return stored
	default:
		return sum(step)
	}
}

// columns returns what the ledger has of an instrument, by step and incarnation.
func (l *lab) columns(t *testing.T, instrument string) map[wire.Step]map[string]wire.Totals {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.LedgerBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	lister, err := kv.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sums := map[wire.Step]map[string]wire.Totals{}
	for key := range lister.Keys() {
		name, _, step, _, err := wire.ParseLedgerKey(key)
		if err != nil || name != instrument {
			continue
		}
		e, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		if sums[step] == nil {
			sums[step] = map[string]wire.Totals{}
		}
		for incarnation, totals := range entry.Incarnations {
			sums[step][incarnation] = sums[step][incarnation].Plus(totals)
		}
	}
	return sums
}

// awaitLedger waits until a column says what it should.
func (l *lab) awaitLedger(t *testing.T, instrument string, step wire.Step, is func(wire.Totals) bool) {
	t.Helper()
	await(t, fmt.Sprintf("the ledger's column %s of %s", step, instrument), func() (bool, string) {
		totals := l.ledger(t, instrument, step)
		b, _ := json.Marshal(totals)
		return is(totals), string(b)
	})
}
