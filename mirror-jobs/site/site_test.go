// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// hubSite is the code of the Site that pulls, and guest the Camera there. Second is another instrument of the origin, where a test
// declares it.
const (
	hubSite = "hub"
	second  = "mag-1"
)

var (
	storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)
	guest = wire.GuestName(archivetest.Site, archivetest.Camera)
)

// here is what is listed at the hub.
type here struct {
	records []*wire.Record
	// damaged is a day whose manifests cannot be read.
	damaged wire.Day
}

// Day implements site.Catalog.
func (h *here) Day(_ context.Context, instrument string, day wire.Day) (*catalog.Day, error) {
	if day == h.damaged {
		return nil, fmt.Errorf("instrument %s, %s: %w", instrument, day, wire.ErrMalformed)
	}
	d := &catalog.Day{Instrument: instrument, Day: day}
	for _, r := range h.records {
		if wire.DayOf(r.ReceivedAt) == day {
			d.Records = append(d.Records, r)
		}
	}
	return d, nil
}

// Days implements site.Catalog.
func (h *here) Days(context.Context, string) (all []wire.RootDay, err error) {
	for _, r := range h.records {
		all = append(all, wire.RootDay{Day: wire.DayOf(r.ReceivedAt), Entries: 1, Bytes: r.Size})
	}
	return all, nil
}

// hub is a Site that pulls from the archive of a Lab, and what is in its registry but guests.
type hub struct {
	*archivetest.Lab
	here
	registry map[string]any
	kv       jetstream.KeyValue
	log      strings.Builder
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{Lab: newOrigin(t), registry: map[string]any{wire.RegistryCompleteKey: wire.RegistryComplete{Revision: 1}}}
	testenv.CreateSite(t, h.JetStream, hubSite)
	var err error
	if h.kv, err = h.JetStream.KeyValue(t.Context(), wire.RegistryBucket(hubSite)); err != nil {
		t.Fatal(err)
	}
	return h
}

// has puts an object into the archive of the origin, and lists it at the hub.
func (h *hub) has(path string, at time.Time) wire.Record {
	h.Helper()
	return h.hasOf(archivetest.Camera, path, at)
}

// hasOf is has of any instrument.
func (h *hub) hasOf(instrument, path string, at time.Time) wire.Record {
	h.Helper()
	r := h.Put(instrument, path, path, func(r *wire.Record) { r.ReceivedAt = at })
	h.Wait(r)
	is := pulledOf(instrument, r)
	if err := h.Store.Put(h.Context(), is.Key, strings.NewReader(path), r.Size, objectstore.PutOptions{}); err != nil {
		h.Fatal(err)
	}
	h.records = append(h.records, is)
	return r
}

// becomes has the origin list an object in another state.
func (h *hub) becomes(r wire.Record, state wire.State) {
	h.Helper()
	r.State, r.Reason = state, "a lamp"
	h.lists(r)
}

// lists has the origin list an object as it is now.
func (h *hub) lists(r wire.Record) {
	h.Helper()
	h.Announce(archivetest.Camera, r)
	h.Until(r.ID+" is "+string(r.State), func() bool {
		d, err := h.Catalog.Day(h.Context(), archivetest.Camera, wire.DayOf(r.ReceivedAt))
		if err != nil {
			h.Fatal(err)
		}
		return slices.ContainsFunc(d.Records, func(is *wire.Record) bool { return is.ID == r.ID && is.State == r.State && is.ChangedBy == r.ChangedBy })
	})
}

// snapshot is the hub's registry as its bucket has it.
func (h *hub) snapshot() *registry.Snapshot {
	h.Helper()
	b := registry.NewBucket(time.Now())
	for key, record := range h.registry {
		data, err := wire.Encode(record)
		if err != nil {
			h.Fatal(err)
		}
		b.Take(key, data, true)
	}
	for _, instrument := range []string{archivetest.Camera, second} {
		key := wire.RegistryGuestKey(archivetest.Site, instrument)
		if e, err := h.kv.Get(h.Context(), key); err == nil {
			b.Take(key, e.Value(), true)
		} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
			h.Fatal(err)
		}
	}
	return registry.Resolve(&registry.Snapshot{}, b)
}

// pull makes one run, and returns what it asked of the origin.
func (h *hub) pull(address string, change ...func(*site.Config)) (asked []string, err error) {
	h.Helper()
	u, err := url.Parse(address)
	if err != nil {
		h.Fatal(err)
	}
	scratch, err := folder.Open(h.TempDir())
	if err != nil {
		h.Fatal(err)
	}
	source := https.New(https.Config{URL: u, Connections: 2})
	defer source.Close()
	h.log.Reset()
	cfg := site.Config{
		Site: hubSite, Kind: wire.MirrorScheduled, Source: source, Catalog: &h.here, Store: h.Store, Registry: h.snapshot, JetStream: h.JetStream, Scratch: scratch,
		Entry: wire.MirrorEntry{Partner: "north", Direction: wire.MirrorPull, Retractions: wire.MirrorTombstone, SafetyStopPercent: 10, Limits: wire.MirrorLimits{Connections: 2},
			HTTPS: &wire.MirrorHTTPS{URL: "https://archive.example.org", Origin: archivetest.Site, Source: wire.MirrorSourceSubstorm}},
		Pause: func(context.Context) error { return nil }, Progress: &push.Progress{}, Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	h.Asked()
	err = site.Run(h.Context(), cfg)
	if closing := scratch.Close(); closing != nil {
		h.Fatal(closing)
	}
	return h.Asked(), err
}

// pulled makes a run that must succeed.
func (h *hub) pulled() (asked []string) {
	h.Helper()
	asked, err := h.pull(h.URL)
	if err != nil {
		h.Fatal(err)
	}
	return asked
}

// requests are what the archivist of the hub was asked for so far.
func (h *hub) requests() (all []wire.Action) {
	h.Helper()
	for _, q := range h.wholeRequests() {
		all = append(all, q.Action)
	}
	return all
}

func (h *hub) wholeRequests() (all []wire.ArchiveRequest) {
	h.Helper()
	s, err := h.JetStream.Stream(h.Context(), wire.NoticeStream(hubSite))
	if err != nil {
		h.Fatal(err)
	}
	for next := uint64(1); ; {
		m, err := s.GetMsg(h.Context(), next, jetstream.WithGetMsgSubject(wire.RequestSubject(hubSite, guest)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all
		}
		if err != nil {
			h.Fatal(err)
		}
		q, err := wire.Decode[wire.ArchiveRequest](m.Data)
		if err != nil {
			h.Fatal(err)
		}
		all, next = append(all, q), m.Sequence+1
	}
}

// longAgo has all that the archivist was asked for have been asked for an hour ago.
func (h *hub) longAgo() {
	h.Helper()
	kv, err := h.JetStream.KeyValue(h.Context(), wire.CursorBucket(hubSite))
	if err != nil {
		h.Fatal(err)
	}
	key := wire.MirrorCursorKey("north", "pull-2015-03-"+archivetest.Camera)
	e, err := kv.Get(h.Context(), key)
	if err != nil {
		h.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(e.Value(), &state); err != nil {
		h.Fatal(err)
	}
	state["asked"] = map[string]time.Time{string(wire.DayOf(storm)): time.Now().Add(-time.Hour).UTC()}
	data, err := json.Marshal(state)
	if err == nil {
		_, err = kv.Put(h.Context(), key, data)
	}
	if err != nil {
		h.Fatal(err)
	}
}

// A change that the archivist refuses, for example because it cannot read a day, is asked for again until it is done; a run says that it waits.
func TestRefusedChange(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.has("a.jpg", storm)
	h.pulled()
	if asked := h.pulled(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}
	h.becomes(r, wire.StatePurged)
	for n := range 2 {
		h.pulled()
		if got := h.requests(); len(got) != n+1 || got[n] != wire.ActionPurge {
			t.Errorf("run %d: the archivist is asked for %v", n, got)
		}
	}
	h.longAgo()
	if _, err := h.pull(h.URL); !errors.Is(err, push.ErrOwed) || !strings.Contains(h.log.String(), "the archivist does not apply") {
		t.Errorf("the archivist did nothing for an hour, and a run says %v, %s", err, h.log.String())
	}
	h.records[0].State = wire.StatePurged
	h.pulled()
	if got := h.requests(); len(got) != 3 {
		t.Errorf("once it is done: %v", got)
	}
	if asked := h.pulled(); len(asked) != 1 {
		t.Errorf("nothing is left: %q", asked)
	}
}

// Under legal hold nothing is retracted that the origin has retracted; once that ends, it is.
func TestHeldChange(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.has("a.jpg", storm)
	h.registry[wire.RegistryCompleteKey] = wire.RegistryComplete{Revision: 1, LegalHold: true}
	h.pulled()
	h.becomes(r, wire.StateRetracted)
	for range 2 {
		h.pulled()
		if got := h.requests(); len(got) != 0 || !strings.Contains(h.log.String(), "legal hold") {
			t.Errorf("under legal hold: %v, %s", got, h.log.String())
		}
	}
	h.registry[wire.RegistryCompleteKey] = wire.RegistryComplete{Revision: 1}
	h.pulled()
	if got := h.requests(); len(got) != 1 || got[0] != wire.ActionRetract {
		t.Errorf("after it: %v", got)
	}
}

// An instrument that the origin closes between the question for its months and that for the days of one is asked for again once it may
// be read: nothing of it counts as seen.
func TestClosedBetween(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.has("a.jpg", storm)
	camera := h.Snapshot().Instruments[archivetest.Camera]
	closed := camera
	closed.Access = archivetest.Restricted
	var once sync.Once
	address := h.closes(func() { once.Do(func() { h.Declare(closed) }) })
	asked, err := h.pull(address)
	if err != nil || countOf(asked, mirrorindex.DaysPath) != 2 || countOf(asked, mirrorindex.ListsPath) != 0 {
		t.Fatalf("it is closed meanwhile: %q, %v", asked, err)
	}
	h.pulled()
	if in := h.snapshot().Instruments[guest]; in.Access.InForce().Archive != wire.AccessRestricted {
		t.Errorf("it is closed there, and here its access is %+v", in.Access)
	}
	h.Declare(camera)
	if asked := h.pulled(); countOf(asked, mirrorindex.ListsPath) != 1 {
		t.Errorf("it may be read again: %q", asked)
	}
}

// closes passes questions on, and calls one between the first answer to one for days and its arrival.
func (h *hub) closes(days func()) string {
	h.Helper()
	u, err := url.Parse(h.URL)
	if err != nil {
		h.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	proxy.ModifyResponse = func(answer *http.Response) error {
		if answer.Request.URL.Path != mirrorindex.DaysPath {
			return nil
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body = io.NopCloser(bytes.NewReader(body))
		days()
		return err
	}
	server := httptest.NewServer(proxy)
	h.Cleanup(server.Close)
	return server.URL
}

// countOf counts the questions to a path.
func countOf(asked []string, path string) (n int) {
	for _, q := range asked {
		if strings.Contains(q, path) {
			n++
		}
	}
	return n
}

// A guest whose entry is lost with the registry's bucket is declared again, though nothing changed at the origin.
func TestLostRegistry(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.has("a.jpg", storm)
	h.pulled()
	if err := h.kv.Delete(t.Context(), wire.RegistryGuestKey(archivetest.Site, archivetest.Camera)); err != nil {
		t.Fatal(err)
	}
	if asked := h.pulled(); countOf(asked, mirrorindex.ListsPath) != 0 {
		t.Errorf("what is listed is compared anew: %q", asked)
	}
	if in, is := h.snapshot().Instruments[guest]; !is || in.Access.InForce().Archive != wire.AccessPublic {
		t.Errorf("the guest is declared: %t, with access %+v", is, in.Access)
	}
	if asked := h.pulled(); len(asked) != 1 {
		t.Errorf("nothing changed: %q", asked)
	}
}

// A day whose manifests here are damaged holds up no other, and is owed until they are rebuilt.
func TestDamagedDay(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.has("a.jpg", storm)
	h.becomes(h.has("b.jpg", storm.AddDate(0, 0, 1)), wire.StateRetracted)
	h.damaged = wire.DayOf(storm)
	for n := range 2 {
		if _, err := h.pull(h.URL); !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "cannot be read (1,") || !strings.Contains(h.log.String(), "substorm archive rebuild") {
			t.Errorf("%v; %s", err, h.log.String())
		}
		if got := h.requests(); len(got) != n+1 {
			t.Errorf("the other day is not followed: %v", got)
		}
	}
	h.damaged = ""
	h.pulled()
}

// startGateway starts one of the hub, and returns the store that it has.
func (h *hub) startGateway() objectstore.Store {
	h.Helper()
	const bucket = "hub"
	store := h.MinIO.Bucket(h, bucket)
	h.NATS.Declare(h, hubSite, testenv.Registry{Revision: 1, Mirrors: []wire.MirrorEntry{{
		Partner: "north", Direction: wire.MirrorPull, Continuous: &wire.MirrorContinuous{IntervalMillis: 60_000},
		HTTPS: &wire.MirrorHTTPS{URL: "https://archive.example.org", Source: wire.MirrorSourceSubstorm, Origin: archivetest.Site},
	}}})
	testenv.StartGateway(h, testenv.GatewayOptions{Site: hubSite, NATS: h.NATS, MinIO: h.MinIO, Bucket: bucket, Flags: []string{"--mirror-listen", "127.0.0.1:0", "--pod-ip", "127.0.0.1"}})
	return store
}

// A large object that does not fit into the scratch is owed, says what to do, and holds up no other; those that fit come one after
// another where they do not fit together.
func TestScratch(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	all := map[string]int{"a.fits": 20 << 20, "b.fits": 60 << 20, "c.fits": 21 << 20, "d.fits": 22 << 20}
	for path, size := range all {
		h.Wait(h.Put(archivetest.Camera, path, strings.Repeat("0", size), func(r *wire.Record) { r.ReceivedAt = storm }))
	}
	scratch := t.TempDir()
	if err := os.MkdirAll(filepath.Join(scratch, "left-behind"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(size int64) func(*site.Config) {
		return func(c *site.Config) {
			f, err := folder.Open(scratch)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			c.Scratch, c.ScratchSize = f, size
		}
	}
	if _, err := h.pull(h.URL, in(50<<20)); !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "1 objects") || !strings.Contains(err.Error(), "set spec.scratchSize") {
		t.Errorf("%v; %s", err, h.log.String())
	}
	for path := range all {
		from := wire.Origin{Site: archivetest.Site, ID: wire.NamedKey(archivetest.Site, archivetest.Camera, path, 1)}
		if _, err := store.Head(t.Context(), from.ObjectID(hubSite, guest, storm, sha256.Sum256([]byte(strings.Repeat("0", all[path]))))); (err == nil) != (path != "b.fits") {
			t.Errorf("%s: %v", path, err)
		}
	}
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) != 1 {
		t.Errorf("in the scratch there is %v, %v", left, err)
	}
}
