// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
	mag    = "mag-1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

type held struct{}

func (held) Check() error { return nil }

// lab is a Site's archive, and what a writer of manifests does in it.
type lab struct {
	t     *testing.T
	js    jetstream.JetStream
	store *counting
	epoch string
	parts map[dayKey]int
	next  uint64
}

// counting counts what is asked of a store.
type counting struct {
	objectstore.Store
	mu   sync.Mutex
	gets []string
	// failing is a prefix of keys that cannot be stored.
	failing string
}

func (c *counting) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	c.mu.Lock()
	c.gets = append(c.gets, key)
	c.mu.Unlock()
	return c.Store.Get(ctx, key, r)
}

func (c *counting) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	if c.failing != "" && strings.HasPrefix(key, c.failing) {
		return objectstore.ErrUnavailable
	}
	return c.Store.Put(ctx, key, body, size, opts)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: parts.NATS(t, parts.NATSOptions{}).JetStream(t), store: &counting{Store: parts.MinIO(t, parts.MinIOOptions{}).Bucket(t, "archive")},
		parts: map[dayKey]int{}, next: 1}
	parts.CreateSite(t, l.js, site)
	l.createBucket()
	epoch, _, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	l.epoch = epoch
	return l
}

func (l *lab) createBucket() {
	l.t.Helper()
	_, err := l.js.CreateOrUpdateKeyValue(l.t.Context(), jetstream.KeyValueConfig{Bucket: wire.IndexBucket(site), Storage: jetstream.FileStorage, History: 1})
	if err != nil {
		l.t.Fatal(err)
	}
}

// keeper returns one that has taken the index up.
func (l *lab) keeper() *Keeper {
	l.t.Helper()
	k := l.idle()
	if err := k.takeUp(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	return k
}

func (l *lab) idle() *Keeper {
	return New(Config{Site: site, Gateway: "gateway-1", Incarnation: "two", JetStream: l.js, Store: l.store, Lease: held{},
		RootInterval: time.Nanosecond, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry())})
}

func (l *lab) record(instrument string, at time.Time) wire.Record {
	body := fmt.Sprint(instrument, at)
	digest := wire.Digest(sha256.Sum256([]byte(body)))
	key := wire.RawKey(site, instrument, at, digest)
	return wire.Record{ID: key, Key: key, Size: 100, Digest: digest, State: wire.StateCurrent, ReceivedAt: at.UTC(), TimeSource: wire.TimeSourceReceived}
}

// part stores a part, and says so to a keeper, as the manifest's writer does.
func (l *lab) part(k *Keeper, instrument string, records ...wire.Record) {
	l.t.Helper()
	of := dayKey{instrument, wire.DayOf(records[0].ReceivedAt)}
	files, err := manifest.List(l.t.Context(), l.store, site, instrument, of.day)
	if err != nil {
		l.t.Fatal(err)
	}
	k.Seen(l.t.Context(), instrument, of.day, files)
	l.parts[of]++
	l.put(wire.ManifestPartKey(site, instrument, of.day, l.parts[of]), wire.ManifestHeader{Site: site, Instrument: instrument, Day: of.day}, records)
	k.Part(l.t.Context(), instrument, of.day, l.parts[of], records)
	for _, r := range records {
		m, err := stream.NoticeMessage(wire.Notice{Site: site, Instrument: instrument, Record: r}, "gateway-0")
		if err != nil {
			l.t.Fatal(err)
		}
		ack, err := l.js.PublishMsg(l.t.Context(), m)
		if err != nil {
			l.t.Fatal(err)
		}
		l.next = ack.Sequence + 1
	}
}

func (l *lab) put(key string, header wire.ManifestHeader, records []wire.Record) {
	l.t.Helper()
	data, err := wire.Manifest{Header: header, Records: records}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.store.Put(l.t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		l.t.Fatal(err)
	}
}

// compact replaces all parts of a day, as the compactor does.
func (l *lab) compact(k *Keeper, instrument string, day wire.Day) {
	l.t.Helper()
	files, err := manifest.List(l.t.Context(), l.store, site, instrument, day)
	if err != nil {
		l.t.Fatal(err)
	}
	var records []wire.Record
	for r, err := range manifest.Records(l.t.Context(), l.store, site, instrument, day) {
		if err != nil {
			l.t.Fatal(err)
		}
		records = append(records, r)
	}
	header := wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Replaces: files.Replaced}
	for _, key := range files.InEffect {
		if name, err := wire.ParseManifestKey(key); err == nil && !name.Compacted {
			header.Replaces = append(header.Replaces, key)
		}
	}
	l.put(wire.ManifestVersionKey(site, instrument, day, files.NextVersion), header, records)
	k.Compacted(l.t.Context(), instrument, day)
}

// flush ends a closing of parts: the index first, then the writer's cursor.
func (l *lab) flush(k *Keeper) {
	l.t.Helper()
	k.Flush(l.t.Context(), wire.StreamCursor{Epoch: l.epoch, Next: l.next})
	l.moveCursor()
}

func (l *lab) moveCursor() {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	value, err := wire.StreamCursor{Epoch: l.epoch, Next: l.next}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := kv.Put(l.t.Context(), wire.NoticeCursorKey, value); err != nil {
		l.t.Fatal(err)
	}
}

// indexed returns the days that a reader finds: those of the root, and of the entry.
func (l *lab) indexed(instrument string) ([]wire.RootDay, wire.IndexEntry) {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.IndexBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), instrument)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, wire.IndexEntry{}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	entry, err := wire.DecodeIndexEntry(e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	var root wire.Root
	if entry.Root > 0 {
		if root, err = manifest.ReadRoot(l.t.Context(), l.store, site, instrument, entry.Root); err != nil {
			l.t.Fatal(err)
		}
	}
	return manifest.MergeDays(root.Days, entry.Open), entry
}

// check compares what readers find with the manifests themselves.
func (l *lab) check(what string) {
	l.t.Helper()
	for _, instrument := range []string{camera, mag} {
		var want []wire.RootDay
		for day, err := range manifest.Days(l.t.Context(), l.store, site, instrument) {
			if err != nil {
				l.t.Fatal(err)
			}
			d, err := manifest.Summarize(l.t.Context(), l.store, site, instrument, day)
			if err != nil {
				l.t.Fatal(err)
			}
			want = append(want, d)
		}
		got, _ := l.indexed(instrument)
		if diff := cmp.Diff(want, got); diff != "" {
			l.t.Errorf("%s: the index of %s is not what the manifests say (-manifests +index):\n%s", what, instrument, diff)
		}
	}
}

// listed is how far the index goes, as it says.
func (l *lab) listed() uint64 {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.IndexBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.IndexListedKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0
	}
	if err != nil {
		l.t.Fatal(err)
	}
	at, err := wire.DecodeStreamCursor(e.Value())
	if err != nil || at.Epoch != l.epoch {
		l.t.Fatalf("%+v, %v", at, err)
	}
	return at.Next
}

func (l *lab) roots(instrument string) []int {
	l.t.Helper()
	var numbers []int
	for info, err := range l.store.List(l.t.Context(), wire.RootPrefix(site, instrument), "") {
		if err != nil {
			l.t.Fatal(err)
		}
		_, _, n, err := wire.ParseRootKey(info.Key)
		if err != nil {
			l.t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}
