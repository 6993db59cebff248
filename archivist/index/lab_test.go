// SPDX-License-Identifier: Apache-2.0

package index

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
	mag    = "mag-1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// lab is a Site's archive, and what a writer of manifests does in it.
type lab struct {
	*manifesttest.Archive
	parts map[dayKey]int
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{Archive: manifesttest.New(t, site), parts: map[dayKey]int{}}
}

func (l *lab) createBucket() {
	l.Helper()
	_, err := l.JetStream.CreateOrUpdateKeyValue(l.Context(), jetstream.KeyValueConfig{Bucket: wire.IndexBucket(site), Storage: jetstream.FileStorage, History: 1})
	if err != nil {
		l.Fatal(err)
	}
}

// keeper returns one that has taken the index up.
func (l *lab) keeper() *Keeper {
	l.Helper()
	k := l.idle()
	if err := k.takeUp(l.Context()); err != nil {
		l.Fatal(err)
	}
	return k
}

func (l *lab) idle() *Keeper {
	deleter := deletion.New(deletion.Config{
		Base:    holder.Base{Site: site, Pod: "gateway-1", Incarnation: "two", Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Metrics: deletion.NewMetrics(prometheus.NewRegistry()),
	})
	return New(Config{
		Base:    holder.Base{Site: site, Pod: "gateway-1", Incarnation: "two", JetStream: l.JetStream, Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Deleter: deleter, RootInterval: time.Nanosecond, Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

func (l *lab) record(instrument string, at time.Time) wire.Record {
	body := fmt.Sprint(instrument, at)
	digest := wire.Digest(sha256.Sum256([]byte(body)))
	key := wire.RawKey(site, instrument, at, digest)
	return wire.Record{ID: key, Key: key, Size: 100, Digest: digest, State: wire.StateCurrent, ReceivedAt: at.UTC(), TimeSource: wire.TimeSourceReceived}
}

// part stores a part, and says so to a keeper, as the manifest's writer does.
func (l *lab) part(k *Keeper, instrument string, records ...wire.Record) {
	l.Helper()
	of := dayKey{instrument, wire.DayOf(records[0].ReceivedAt)}
	files, err := manifest.List(l.Context(), l.Store, site, instrument, of.day)
	if err != nil {
		l.Fatal(err)
	}
	k.Seen(l.Context(), instrument, of.day, files)
	l.parts[of]++
	l.PutPart(instrument, of.day, l.parts[of], records...)
	info, err := l.Store.Head(l.Context(), wire.ManifestPartKey(site, instrument, of.day, l.parts[of]))
	if err != nil {
		l.Fatal(err)
	}
	k.Part(l.Context(), instrument, of.day, l.parts[of], info.Size, records)
	l.Announce(instrument, records...)
}

// compact replaces all parts of a day, as the compactor does.
func (l *lab) compact(k *Keeper, instrument string, day wire.Day) {
	l.Helper()
	l.Compact(instrument, day)
	k.Compacted(l.Context(), instrument, day)
}

// flush ends a closing of parts: the index first, then the writer's cursor.
func (l *lab) flush(k *Keeper) {
	l.Helper()
	k.Flush(l.Context(), wire.StreamCursor{Epoch: l.Epoch, Next: l.Next})
	l.moveCursor()
}

func (l *lab) moveCursor() {
	l.Helper()
	value, err := wire.Encode(wire.StreamCursor{Epoch: l.Epoch, Next: l.Next})
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.KV(wire.CursorBucket(site)).Put(l.Context(), wire.NoticeCursorKey, value); err != nil {
		l.Fatal(err)
	}
}

// indexed returns the days that a reader finds: those of the root, and of the entry.
func (l *lab) indexed(instrument string) ([]wire.RootDay, wire.IndexEntry) {
	l.Helper()
	e, err := l.KV(wire.IndexBucket(site)).Get(l.Context(), instrument)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, wire.IndexEntry{}
	}
	if err != nil {
		l.Fatal(err)
	}
	entry, err := wire.Decode[wire.IndexEntry](e.Value())
	if err != nil {
		l.Fatal(err)
	}
	var root wire.Root
	if entry.Root > 0 {
		if root, err = manifest.ReadRoot(l.Context(), l.Store, site, instrument, entry.Root); err != nil {
			l.Fatal(err)
		}
	}
	return manifest.MergeDays(root.Days, entry.Open), entry
}

// check compares what readers find with the manifests themselves.
func (l *lab) check(what string) {
	l.Helper()
	for _, instrument := range []string{camera, mag} {
		var want []wire.RootDay
		for day, err := range manifest.Days(l.Context(), l.Store, site, instrument) {
			if err != nil {
				l.Fatal(err)
			}
			d, err := manifest.Summarize(l.Context(), l.Store, site, instrument, day)
			if err != nil {
				l.Fatal(err)
			}
			want = append(want, d)
		}
		got, _ := l.indexed(instrument)
		if diff := cmp.Diff(want, got); diff != "" {
			l.Errorf("%s: the index of %s is not what the manifests say (-manifests +index):\n%s", what, instrument, diff)
		}
	}
}

// listed is how far the index goes, as it says.
func (l *lab) listed() uint64 {
	l.Helper()
	e, err := l.KV(wire.IndexBucket(site)).Get(l.Context(), wire.IndexListedKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0
	}
	if err != nil {
		l.Fatal(err)
	}
	at, err := wire.Decode[wire.StreamCursor](e.Value())
	if err != nil || at.Epoch != l.Epoch {
		l.Fatalf("%+v, %v", at, err)
	}
	return at.Next
}

func (l *lab) roots(instrument string) []int {
	l.Helper()
	var numbers []int
	for _, key := range l.Keys(wire.RootPrefix(site, instrument)) {
		_, _, n, err := wire.ParseRootKey(key)
		if err != nil {
			l.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}
