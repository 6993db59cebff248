// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// followed is a follower on a real bucket.
type followed struct {
	*Follower
	t       *testing.T
	changed chan struct{}
	stop    func()
}

func follow(t *testing.T, js jetstream.JetStream, file string) *followed {
	return followLogged(t, js, file, slog.New(slog.DiscardHandler))
}

func followLogged(t *testing.T, js jetstream.JetStream, file string, logger *slog.Logger) *followed {
	f := &followed{t: t, changed: make(chan struct{}, 1000)}
	f.Follower = NewFollower(FollowerConfig{
		Site: "hub", Scope: scope, File: file, Registry: NewRegistry(), Logger: logger,
		Apply:   func(*Snapshot) map[string]string { return nil },
		Changed: func() { f.changed <- struct{}{} },
	})
	if js != nil {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			f.Run(ctx, js)
			close(done)
		}()
		f.stop = func() {
			cancel()
			<-done
		}
		t.Cleanup(f.stop)
	}
	return f
}

// await waits until the registry in force is as it should be.
func (f *followed) await(what string, is func(*Snapshot) bool) {
	f.t.Helper()
	deadline := time.After(testenv.Patience)
	for !is(f.cfg.Registry.Current()) {
		select {
		case <-f.changed:
		case <-deadline:
			f.t.Fatalf("never: %s; revision %d, problems %v", what, f.cfg.Registry.Current().Revision, f.cfg.Registry.Current().Problems)
		}
	}
}

func put(t *testing.T, kv jetstream.KeyValue, key string, record any) {
	t.Helper()
	b, err := wire.Encode(record)
	if err == nil {
		_, err = kv.Put(t.Context(), key, b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	ctx := t.Context()
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	kv, err := js.KeyValue(ctx, wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "registry.json")
	f := follow(t, js, file)

	put(t, kv, wire.RegistryInstrumentKey("a"), entry("a", 1, "TCP 30100"))
	f.await("a before the marker", func(s *Snapshot) bool { return who(s, "TCP 30100 ::1") == "a@1" && s.Revision == 0 })
	put(t, kv, wire.RegistryInstrumentKey("b"), entry("b", 1, "UDP 30101"))
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 2})
	f.await("revision 1", func(s *Snapshot) bool { return s.Revision == 1 && who(s, "UDP 30101 ::1") == "b@1" })

	// A newer format is refused and reported as a problem, and the older entry stays.
	if _, err := kv.Put(ctx, wire.RegistryInstrumentKey("a"), []byte(`{"format":2,"instrument":"a","listeners":"none"}`)); err != nil {
		t.Fatal(err)
	}
	f.await("the problem", func(s *Snapshot) bool {
		return s.Problems["a"] != "" && who(s, "TCP 30100 ::1") == "a@1"
	})

	// While NATS is away, what was last seen stays; what changes meanwhile is seen after.
	put(t, kv, wire.RegistryInstrumentKey("a"), entry("a", 2, "TCP 30102"))
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 2, Count: 2})
	f.await("revision 2", func(s *Snapshot) bool {
		return s.Revision == 2 && who(s, "TCP 30100 ::1") == "" && len(s.Problems) == 0
	})
	server.Kill()
	server.Start()
	other, err := server.JetStream(t).KeyValue(ctx, wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Delete(ctx, wire.RegistryInstrumentKey("b")); err != nil {
		t.Fatal(err)
	}
	put(t, other, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 3, Count: 1})
	f.await("revision 3 without b", func(s *Snapshot) bool { return s.Revision == 3 && who(s, "UDP 30101 ::1") == "" })
	f.stop()

	// A start without NATS knows the registry last seen.
	again := follow(t, nil, file)
	if s := again.cfg.Registry.Current(); s.Revision != 3 || who(s, "TCP 30102 ::1") != "a@2" {
		t.Errorf("from the volume: revision %d", s.Revision)
	}
	// A bucket that was recreated, and counts from 1, is believed.
	if err := js.DeleteKeyValue(ctx, wire.RegistryBucket("hub")); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, js, "hub")
	put(t, kv, wire.RegistryInstrumentKey("z"), entry("z", 1, "TCP 30100"))
	last := follow(t, js, file)
	last.await("z beside a", func(s *Snapshot) bool {
		return who(s, "TCP 30100 ::1") == "z@1" && who(s, "TCP 30102 ::1") == "a@2" && s.Revision == 3
	})
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1})
	last.await("z alone", func(s *Snapshot) bool { return s.Revision == 1 && who(s, "TCP 30102 ::1") == "" })
}

// A bucket that is recreated under a running follower is found.
func TestFollowBucketMadeAnew(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	kv, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, js, filepath.Join(t.TempDir(), "registry.json"))
	put(t, kv, wire.RegistryInstrumentKey("a"), entry("a", 7, "TCP 30100"))
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 7, Count: 1})
	f.await("a", func(s *Snapshot) bool { return s.Revision == 7 })
	if err := js.DeleteKeyValue(t.Context(), wire.RegistryBucket("hub")); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, js, "hub")
	put(t, kv, wire.RegistryInstrumentKey("b"), entry("b", 1, "TCP 30101"))
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1})
	f.await("b alone", func(s *Snapshot) bool {
		return s.Revision == 1 && who(s, "TCP 30101 ::1") == "b@1" && who(s, "TCP 30100 ::1") == ""
	})
}

// A registry that could not be saved is saved once the volume takes it.
func TestSavedLater(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	kv, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{}, 100)
	volume := filepath.Join(t.TempDir(), "volume")
	file := filepath.Join(volume, "registry.json")
	f := followLogged(t, js, file, slog.New(slog.NewTextHandler(signal(failed), &slog.HandlerOptions{Level: slog.LevelError})))
	put(t, kv, wire.RegistryInstrumentKey("a"), entry("a", 1, "TCP 30100"))
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1})
	f.await("a", func(s *Snapshot) bool { return s.Revision == 1 })
	deadline := time.After(testenv.Patience)
	select {
	case <-failed:
	case <-deadline:
		t.Fatal("nothing says that the registry cannot be saved")
	}
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	for {
		last, err := load(file, "hub")
		if err != nil {
			t.Fatal(err)
		}
		if s := resolve(&Snapshot{}, last, scope); s.Revision == 1 && who(s, "TCP 30100 ::1") == "a@1" {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("the registry is never saved")
		}
	}
}

// signal is a writer that signals each write.
type signal chan struct{}

func (s signal) Write(p []byte) (int, error) {
	s <- struct{}{}
	return len(p), nil
}

// The rest of a write that was cut short is removed at the start, and nothing else is.
func TestPartsRemoved(t *testing.T) {
	dir := t.TempDir()
	kept := []string{"registry.json.123456", "registry.json.d", "registry.json.old", "registry.jsonx.1"}
	for _, name := range append([]string{"registry.json.part"}, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	follow(t, nil, filepath.Join(dir, "registry.json"))
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff(kept, names); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefuses(t *testing.T) {
	saved := func(format int, site string) string {
		b, _ := json.Marshal(savedRegistry{Format: format, Site: site, Revision: 1})
		return string(b)
	}
	for name, body := range map[string]string{
		"no JSON":      "{",
		"newer format": saved(2, "hub"),
		"another site": saved(1, "other"),
	} {
		file := filepath.Join(t.TempDir(), "registry.json")
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := load(file, "hub"); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// An entry of the file that has no name, or no sense, is a problem of its own: the others are known, and all are there.
func TestLoadUnreadable(t *testing.T) {
	good, err := wire.Encode(entry("a", 1, "TCP 30100 ::1"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(savedRegistry{Format: wire.Format, Site: "hub", Epoch: time.Unix(1, 0), Revision: 1,
		Entries: []json.RawMessage{good, json.RawMessage(`{"format":1}`), json.RawMessage(`7`)}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "registry.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := load(file, "hub")
	if err != nil || !s.Complete || s.Instruments["a"].Instrument != "a" || len(s.Problems) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// FuzzEntry: whatever an entry of the registry holds, reading it ends in an instrument or a
// problem, and an instrument that was read can be saved and read again.
func FuzzEntry(f *testing.F) {
	for _, e := range []wire.InstrumentEntry{
		entry("a", 1, "TCP 30100 10.0.0.0/8,::/0", "UDP 30101"), entry("b", 2), {},
	} {
		b, _ := wire.Encode(e)
		f.Add(b)
	}
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var head struct {
			Instrument string `json:"instrument"`
		}
		_ = json.Unmarshal(raw, &head)
		b := registry.NewBucket(time.Unix(1, 0))
		b.Take(wire.RegistryInstrumentKey(head.Instrument), raw, true)
		every := Scope{FirstPort: 1, LastPort: 65535}
		s := resolve(&Snapshot{}, registry.Resolve(registry.New().Snapshot(), b), every)
		if in := s.known[head.Instrument]; head.Instrument != "" && (in == nil) == (s.Problems[head.Instrument] == "") {
			t.Fatalf("%q: neither an instrument nor a problem, or both", head.Instrument)
		}
		file := filepath.Join(t.TempDir(), "registry.json")
		if err := s.save(file, "hub"); err != nil {
			t.Fatal(err)
		}
		saved, err := load(file, "hub")
		if err != nil {
			t.Fatal(err)
		}
		again := resolve(&Snapshot{}, saved, every)
		if got, want := fmt.Sprint(again.Ports(wire.ProtocolTCP)), fmt.Sprint(s.Ports(wire.ProtocolTCP)); got != want {
			t.Fatalf("ports %s became %s", want, got)
		}
	})
}
