// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/worker"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const sky = "allsky-1"

// kept is a Site whose archivist works, with objects of one instrument.
type kept struct {
	t     *testing.T
	store objectstore.Store
	js    jetstream.JetStream
	flags []string
	stop  func()

	mu    sync.Mutex
	entry wire.InstrumentEntry
}

func newKept(t *testing.T) *kept {
	t.Helper()
	f := &fixture{server: testenv.SharedMinIO(t, testenv.MinIOOptions{}), bucket: testenv.BucketName()}
	server := testenv.NATS(t, testenv.NATSOptions{})
	k := &kept{t: t, store: f.server.Bucket(t, f.bucket), js: server.JetStream(t), flags: append(f.flags(t), "--nats-servers", server.URL()),
		entry: wire.InstrumentEntry{Instrument: sky}}
	testenv.CreateSite(t, k.js, site)
	k.declare(false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, worker.Config{Site: site, Pod: "gateway-0", Incarnation: "one", JetStream: k.js, Store: k.store,
			Settings: k.setting, PartInterval: 100 * time.Millisecond, RemoveInterval: 50 * time.Millisecond, RemoveGrace: time.Millisecond,
			ScratchDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	}()
	k.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(k.stop)
	return k
}

func (k *kept) setting(instrument string) (wire.InstrumentEntry, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entry, instrument == sky
}

func (k *kept) declare(hold bool) {
	k.t.Helper()
	k.mu.Lock()
	k.entry.LegalHold = hold
	data, err := wire.Encode(k.entry)
	k.mu.Unlock()
	if err != nil {
		k.t.Fatal(err)
	}
	kv, err := k.js.KeyValue(k.t.Context(), wire.RegistryBucket(site))
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := kv.Put(k.t.Context(), wire.RegistryInstrumentKey(sky), data); err != nil {
		k.t.Fatal(err)
	}
}

// send stores and announces an object that is published under a path.
func (k *kept) send(path, text string, at time.Time, change ...func(*wire.Record)) wire.Record {
	k.t.Helper()
	r := put(k.t, k.store, sky, text, at)
	r.Path = path
	for _, c := range change {
		c(&r)
	}
	n := wire.Notice{Site: site, Instrument: sky, Record: r}
	metadata, err := wire.ObjectMetadata(n) // now with the path
	if err == nil {
		err = k.store.Put(k.t.Context(), r.Key, strings.NewReader(text), r.Size, objectstore.PutOptions{ContentType: r.MediaType, Metadata: metadata, Digest: r.Digest})
	}
	if err != nil {
		k.t.Fatal(err)
	}
	m, err := stream.NoticeMessage(n, "gateway-0")
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.js.PublishMsg(k.t.Context(), m); err != nil {
		k.t.Fatal(err)
	}
	return r
}

// states are those of all that is listed, by path.
func (k *kept) states() map[string]wire.State {
	k.t.Helper()
	all := map[string]wire.State{}
	for day, err := range manifest.Days(k.t.Context(), k.store, site, sky) {
		if err != nil {
			k.t.Fatal(err)
		}
		for r, err := range manifest.Records(k.t.Context(), k.store, site, sky, day) {
			if err != nil {
				k.t.Fatal(err)
			}
			all[r.Published()] = r.State
		}
	}
	return all
}

// await waits until so many objects are listed.
func (k *kept) await(count int) {
	k.t.Helper()
	testenv.Await(k.t, "all is listed", func() bool { return len(k.states()) >= count })
}

// do runs a command of the archive with an answer to what it asks.
func (k *kept) do(answer string, args ...string) (string, error) {
	k.t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetIn(strings.NewReader(answer))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(slices.Concat(args, k.flags))
	err := cmd.ExecuteContext(k.t.Context())
	return out.String(), err
}

// TestRetractAWrongFolder: what one sender brought within some seconds is retracted, and restored, by one command; the rest stays.
func TestRetractAWrongFolder(t *testing.T) {
	k := newKept(t)
	from := func(source string) func(*wire.Record) { return func(r *wire.Record) { r.Source = source } }
	observed := func(at time.Time) func(*wire.Record) {
		return func(r *wire.Record) {
			to := at.Add(time.Minute)
			r.ObservedFrom, r.ObservedTo, r.TimeSource = &at, &to, wire.TimeSourceName
		}
	}
	const camera, laptop = "192.0.2.7:40001", "198.51.100.9:50123"
	wrong := noon.Truncate(time.Second).Add(30 * time.Second)
	k.send("2026/11/21/before.jpg", "before", wrong.Add(-time.Second), from(laptop))
	k.send("2026/11/21/frame.jpg", "frame", wrong.Add(time.Second), from(camera), observed(noon.AddDate(0, 0, -3)))
	k.send("2026/11/21/ca.key", "key", wrong, from(laptop))
	k.send("2026/11/21/data/x.blk", "block", wrong.Add(9*time.Second), from("[::ffff:198.51.100.9]:50124"))
	k.send("2026/11/21/last.blk", "last", wrong.Add(10*time.Second+999*time.Millisecond), from(laptop))
	k.send("2026/11/21/after.blk", "after", wrong.Add(11*time.Second), from(laptop))
	k.await(6)
	are := func(state wire.State, want ...string) {
		t.Helper()
		var got []string
		for path, is := range k.states() {
			if is == state {
				got = append(got, path[len("2026/11/21/"):])
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s are %q, want %q", state, got, want)
		}
	}
	do := func(want string, args ...string) {
		t.Helper()
		if out, err := k.do("", append(args, "--reason", "a wrong folder")...); err != nil || !strings.Contains(out, want) {
			t.Fatalf("%s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, want)
		}
	}
	interval := "--received=2026-11-21T12:00:30..2026-11-21T12:00:40"
	do("3 objects, 12 B would be retracted", "retract", sky, interval, "--from", "198.51.100.0/24", "--dry-run")
	are(wire.StateRetracted)
	do("may not be listed yet", "retract", sky, "--received=2026-11-21T12:00:30..", "--from", "198.51.100.0/24", "--dry-run")
	do("may not be listed yet", "retract", sky, "2026/11/21/data/", "--dry-run")
	for _, narrow := range []string{interval, "--day=2026-11-21"} {
		if out, err := k.do("", "retract", sky, "2026/11/21/", narrow, "--dry-run", "--reason", "a wrong folder"); err != nil || strings.Contains(out, "listed yet") {
			t.Errorf("%s, of a day long ago: %v\n%s", narrow, err, out)
		}
	}
	do("3 objects, 12 B would be retracted", "retract", sky, interval, "--from", "::ffff:198.51.100.0/120", "--dry-run")
	do("3 objects, 12 B of instrument allsky-1 retracted", "retract", sky, interval, "--from", "198.51.100.9")
	are(wire.StateRetracted, "ca.key", "data/x.blk", "last.blk")
	do("2 objects, 9 B would be restored", "restore", sky, "--match", "*.blk", "--dry-run")
	do("1 object, 5 B would be restored", "restore", sky, "--match", "2026/11/21/data/*", "--dry-run")
	do("1 object, 4 B would be restored", "restore", sky, "2026/11/21/last.blk", "--match", "*.blk", "--dry-run")
	do("3 objects, 12 B of instrument allsky-1 restored", "restore", sky, interval, "--from", "198.51.100.9")
	are(wire.StateRetracted)
	do("1 object, 5 B would be retracted", "retract", sky, "--observed", "2026-11-18", "--dry-run")
	do("1 object, 5 B of instrument allsky-1 retracted", "retract", sky, "--observed", "2026-11-18T12:00..")
	are(wire.StateRetracted, "frame.jpg")
	for want, args := range map[string][]string{
		"name a path":       {"retract", sky},
		"which objects":     {"retract"},
		"one too many":      {"retract", sky, "a", "b"},
		"not an interval":   {"retract", sky, "--received", "yesterday"},
		"ends before":       {"retract", sky, "--observed", "2026-11-22..2026-11-21"},
		"nor a network":     {"retract", sky, "--from", "laptop"},
		"matches all its":   {"retract", sky, "--from", "::ffff:0.0.0.0/64"},
		"not a pattern":     {"retract", sky, "--match", "[a"},
		"--match *.pgm":     {"retract", sky, "--match", "*.pgm"},
		"restore shows it":  {"retract", sky, "--match", "frame.*"},
		"an empty path":     {"retract", sky, ""},
		"which objects of ": {"restore", sky},
	} {
		if out, err := k.do("", append(args, "--reason", "x")...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\n%s\nwant %q", args, err, out, want)
		}
	}
}

// TestRetractDatagramsOfASender: an error says that segments name no senders of their datagrams.
func TestRetractDatagramsOfASender(t *testing.T) {
	k := newKept(t)
	k.send("2026/11/21/a.pcapng", "datagrams", noon, func(r *wire.Record) {
		r.Segment = &wire.SegmentRange{Channel: "all", Epoch: "e", First: 1, Last: 10, Messages: 10, Datagrams: 10, DatagramBytes: 9}
	})
	k.await(1)
	out, err := k.do("", "retract", sky, "--from", "127.0.0.2", "--reason", "x", "--dry-run")
	if err == nil || !strings.Contains(err.Error(), "selects no datagrams") || !strings.Contains(err.Error(), "--received") {
		t.Errorf("got %v\n%s", err, out)
	}
	if _, err := k.do("", "retract", sky, "--from", "127.0.0.2", "--match", "b*", "--reason", "x", "--dry-run"); err == nil || strings.Contains(err.Error(), "datagrams") {
		t.Errorf("of another name: %v", err)
	}
}

func TestRetract(t *testing.T) {
	k := newKept(t)
	one := k.send("2026/11/21/one.jpg", "one", noon)
	two := k.send("2026/11/21/two.jpg", "two", noon.Add(time.Second))
	k.send("2026/11/20/three.jpg", "three", noon.AddDate(0, 0, -1))
	k.await(3)
	must := func(want string, args ...string) {
		t.Helper()
		out, err := k.do("", args...)
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("%s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, want)
		}
	}
	refused := func(answer, want string, args ...string) {
		t.Helper()
		before := k.states()
		out, err := k.do(answer, args...)
		if err == nil || !strings.Contains(err.Error()+out, want) {
			t.Fatalf("%s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, want)
		}
		for path, state := range k.states() {
			if state != before[path] {
				t.Errorf("%s is %s in spite of the refusal", path, state)
			}
		}
	}
	is := func(path string, want wire.State) {
		t.Helper()
		if got := k.states()[path]; got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	refused("", "--reason", "retract", sky, one.Path)
	refused("", "one line", "retract", sky, one.Path, "--reason", "a\nb")
	refused("", "lists nothing", "retract", sky, "2026/11/21/ten.jpg", "--reason", "x")
	refused("", "lists nothing", "retract", "allsky-9", one.Path, "--reason", "x")
	must("2 objects, 6 B would be retracted", "retract", sky, "2026/11/21/", "--reason", "dark", "--dry-run")
	is(one.Path, wire.StateCurrent)

	must("1 object, 3 B of instrument allsky-1 retracted", "retract", sky, one.Path, "--reason", "a lamp was on")
	is(one.Path, wire.StateRetracted)
	refused("", "substorm archive restore", "retract", sky, one.Path, "--reason", "again")
	must("restored", "restore", sky, one.Digest.String()[:16], "--reason", "it was the moon")
	is(one.Path, wire.StateCurrent)
	refused("", "it is given out as it is", "restore", sky, one.Path, "--reason", "again")

	k.declare(true)
	refused("", one.Path+" is not retracted: LegalHold: ", "retract", sky, one.Path, "--reason", "x")
	refused("", one.Path+" is not purged: LegalHold: ", "purge", sky, one.Path, "--reason", "x", "--yes")
	k.declare(false)

	refused("no\n", "not confirmed", "purge", sky, "2026/11/21/", "--reason", "private")
	must("2 objects, 6 B of instrument allsky-1 purged", "purge", sky, "2026/11/21/", "--reason", "private", "--yes")
	is(one.Path, wire.StatePurged)
	is(two.Path, wire.StatePurged)
	is("2026/11/20/three.jpg", wire.StateCurrent)
	for _, r := range []wire.Record{one, two} {
		if _, err := k.store.Head(t.Context(), r.Key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("the bytes of %s: %v", r.Path, err)
		}
	}
	k.noneBoth()
	refused("", "only its sender", "restore", sky, one.Path, "--reason", "too late")
	if out, err := k.do("yes\n", "purge", sky, "2026/11/20/three.jpg", "--reason", "private"); err != nil || !strings.Contains(out, "Type yes") {
		t.Errorf("%v\n%s", err, out)
	}
	is("2026/11/20/three.jpg", wire.StatePurged)
}

// noneBoth checks that no notice tells of a purge and says when its object was restored,
// and that the archivist alone published that.
func (k *kept) noneBoth() {
	k.t.Helper()
	notices, err := k.js.Stream(k.t.Context(), wire.NoticeStream(site))
	if err != nil {
		k.t.Fatal(err)
	}
	purges := 0
	for seq := uint64(1); seq <= notices.CachedInfo().State.LastSeq; seq++ {
		m, err := notices.GetMsg(k.t.Context(), seq)
		if err != nil {
			k.t.Fatal(err)
		}
		n, err := wire.Decode[wire.Notice](m.Data)
		if err != nil || n.State != wire.StatePurged {
			continue
		}
		purges++
		if source := m.Header.Get(wire.HeaderSource); source != wire.EventSource(site, wire.ArchivistWriter) {
			k.t.Errorf("%s publishes a purge of %s", source, n.ID)
		}
		if n.RestoredAt != nil {
			k.t.Errorf("the purge of %s speaks of a restoration at %s", n.ID, n.RestoredAt)
		}
	}
	if purges == 0 {
		k.t.Error("no purge was published")
	}
}

// Manifests that are lost and rebuilt say the same of what was retracted.
func TestRebuildRetracted(t *testing.T) {
	k := newKept(t)
	for i, name := range []string{"shown", "hidden", "back", "gone"} {
		k.send("2026/11/21/"+name+".jpg", name, noon.Add(time.Duration(i)*time.Second))
	}
	k.await(4)
	for _, args := range [][]string{{"retract", sky, "2026/11/21/hidden.jpg"}, {"retract", sky, "2026/11/21/back.jpg"},
		{"restore", sky, "2026/11/21/back.jpg"}, {"purge", sky, "2026/11/21/gone.jpg", "--yes"}} {
		if out, err := k.do("", append(args, "--reason", "why not")...); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	k.stop()
	records := func() []wire.Record {
		t.Helper()
		var all []wire.Record
		for r, err := range manifest.Records(t.Context(), k.store, site, sky, "2026-11-21") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		slices.SortFunc(all, func(a, b wire.Record) int { return strings.Compare(a.ID, b.ID) })
		return all
	}
	before := records()
	if out, err := k.do("", "rebuild", "--dry-run", "--age", "0"); err != nil || !strings.Contains(out, "0 unlisted, 0 missing, 0 moved") {
		t.Errorf("%v\n%s", err, out)
	}
	for info, err := range k.store.List(t.Context(), wire.ManifestSitePrefix(site), "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := k.store.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := k.do("", "rebuild", "--age", "0"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(before, records()); diff != "" || len(before) != 4 {
		t.Errorf("of %d (-before +after):\n%s", len(before), diff)
	}
}

// A path means the version that is given out, unless others are asked for; duplicates in
// packs go with what they duplicate.
func TestChoice(t *testing.T) {
	version := func(number int, state wire.State, digest byte) wire.Record {
		return wire.Record{ID: string(rune('a' + number)), Path: "night.fits", Version: number, State: state, Digest: wire.Digest{0xab, 0xcd, 0xef, 0x01, digest}, ReceivedAt: noon}
	}
	all := []wire.Record{version(1, wire.StateSuperseded, 1), version(2, wire.StateCurrent, 2), version(3, wire.StateRetracted, 3)}
	for name, c := range map[string]struct {
		choice choice
		want   []int
	}{
		"the current one": {choice{what: "night.fits"}, []int{2}},
		"all":             {choice{what: "night.fits", allVersions: true}, []int{1, 2, 3}},
		"one of them":     {choice{what: "night.fits", version: 1}, []int{1}},
		"its digest":      {choice{what: "abcdef0103"}, []int{3}},
		"its folder":      {choice{what: "night"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var found []wire.Record
			for i := range all {
				if _, matches := c.choice.matches(&all[i]); matches && c.choice.holdsVersion(&all[i]) {
					found = append(found, all[i])
				}
			}
			var got []int
			for _, r := range c.choice.current(found) {
				got = append(got, r.Version)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("versions %v, want %v", got, c.want)
			}
		})
	}
	several := choice{what: "abcdef01"}
	if err := several.checkOneDigest(all); err == nil || !strings.Contains(err.Error(), "more digits") {
		t.Errorf("of several digests: %v", err)
	}
	copies := []wire.Record{{ID: "x", Digest: all[0].Digest}, {ID: "y", Digest: wire.Digest{1}}}
	if got := copiesOf(all, copies); len(got) != 1 || got[0].ID != "x" {
		t.Errorf("copies: %v", got)
	}
}
