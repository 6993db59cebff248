// SPDX-License-Identifier: Apache-2.0

// Package manifesttest is a Site's archive for tests: a real store and a real NATS, and
// what gateways, the manifest's writer and the compactor leave there.
package manifesttest

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Archive is one; the test fails where something cannot be done to it.
type Archive struct {
	testing.TB
	Site      string
	NATS      *testenv.NATSServer
	JetStream jetstream.JetStream
	Store     *Store
	// Epoch is the epoch of the notice stream, and Next the sequence behind its last notice.
	Epoch string
	Next  uint64
}

// New returns an empty one.
func New(t testing.TB, site string) *Archive {
	t.Helper()
	nats := testenv.NATS(t, testenv.NATSOptions{})
	a := &Archive{TB: t, Site: site, NATS: nats, JetStream: nats.JetStream(t), Next: 1,
		Store: &Store{Store: testenv.MinIO(t, testenv.MinIOOptions{}).Bucket(t, "archive"), left: -1}}
	testenv.CreateSite(t, a.JetStream, site)
	var err error
	if a.Epoch, _, err = stream.Epoch(t.Context(), a.JetStream, wire.NoticeStream(site)); err != nil {
		t.Fatal(err)
	}
	return a
}

// KV returns a bucket.
func (a *Archive) KV(bucket string) jetstream.KeyValue {
	a.Helper()
	kv, err := a.JetStream.KeyValue(a.Context(), bucket)
	if err != nil {
		a.Fatal(err)
	}
	return kv
}

// Put stores bytes, and overwrites others.
func (a *Archive) Put(key string, data []byte) {
	a.Helper()
	if err := a.Store.Put(a.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{}); err != nil {
		a.Fatal(err)
	}
}

// Keys returns what lies under a prefix.
func (a *Archive) Keys(prefix string) []string {
	a.Helper()
	var keys []string
	for info, err := range a.Store.List(a.Context(), prefix, "") {
		if err != nil {
			a.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// Clear empties the store.
func (a *Archive) Clear() {
	a.Helper()
	for _, key := range a.Keys("") {
		if err := a.Store.Delete(a.Context(), key); err != nil {
			a.Fatal(err)
		}
	}
}

// Announce publishes a notice of each record: what was retracted the archivist's, all
// else a gateway's.
func (a *Archive) Announce(instrument string, records ...wire.Record) {
	a.Helper()
	for _, r := range records {
		writer := "gateway-0"
		if r.IsChange() {
			writer = wire.ArchivistWriter
		}
		m, err := stream.NoticeMessage(wire.Notice{Site: a.Site, Instrument: instrument, Record: r}, writer)
		if err != nil {
			a.Fatal(err)
		}
		ack, err := a.JetStream.PublishMsg(a.Context(), m)
		if err != nil {
			a.Fatal(err)
		}
		a.Next = ack.Sequence + 1
	}
}

// PutPart stores a part of a day's manifest.
func (a *Archive) PutPart(instrument string, day wire.Day, number int, records ...wire.Record) {
	a.Helper()
	a.list(wire.ManifestPartKey(a.Site, instrument, day, number), wire.ManifestHeader{Site: a.Site, Instrument: instrument, Day: day}, records)
}

// Compact stores a version of a day's manifest instead of what is in effect of it.
func (a *Archive) Compact(instrument string, day wire.Day) {
	a.Helper()
	files, err := manifest.List(a.Context(), a.Store, a.Site, instrument, day)
	if err != nil {
		a.Fatal(err)
	}
	header := wire.ManifestHeader{Site: a.Site, Instrument: instrument, Day: day, Replaces: files.Replaced}
	for _, key := range files.InEffect {
		if name, err := wire.ParseManifestKey(key); err == nil && !name.Compacted {
			header.Replaces = append(header.Replaces, key)
		}
	}
	var records []wire.Record
	for r, err := range manifest.Records(a.Context(), a.Store, a.Site, instrument, day) {
		if err != nil {
			a.Fatal(err)
		}
		records = append(records, r)
	}
	a.list(wire.ManifestVersionKey(a.Site, instrument, day, files.NextVersion), header, records)
}

func (a *Archive) list(key string, header wire.ManifestHeader, records []wire.Record) {
	a.Helper()
	data, err := wire.Manifest{Header: header, Records: records}.Encode()
	if err == nil {
		err = a.Store.Put(a.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true})
	}
	if err != nil {
		a.Fatal(err)
	}
}
