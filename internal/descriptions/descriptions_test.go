// SPDX-License-Identifier: Apache-2.0

package descriptions_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/descriptions"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestAt(t *testing.T) {
	of := func(generation int64, from time.Time) wire.Description {
		return wire.DescriptionOf("thule", wire.InstrumentEntry{Instrument: "mag", Generation: generation}, from)
	}
	if d, ok := descriptions.At(nil, noon); ok {
		t.Errorf("of none: %+v", d)
	}
	all := []wire.Description{of(1, noon), of(4, noon.Add(time.Hour)), of(5, noon.Add(2*time.Hour))}
	for at, want := range map[time.Duration]int64{
		-24 * time.Hour: 1, 0: 1, time.Hour - 1: 1, time.Hour: 4, 2*time.Hour - 1: 4, 2 * time.Hour: 5, 1000 * time.Hour: 5,
	} {
		if d, ok := descriptions.At(all, noon.Add(at)); !ok || d.Generation != want {
			t.Errorf("at noon + %s: generation %d, want %d", at, d.Generation, want)
		}
	}
}

// TestRun: descriptions become visible as they arrive, in the order of their times, including those of a bucket that was recreated.
func TestRun(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, "thule")
	put := func(instrument string, generation int64, from time.Time) {
		t.Helper()
		kv, err := js.KeyValue(t.Context(), wire.DescriptionBucket("thule"))
		if err != nil {
			t.Fatal(err)
		}
		d := wire.DescriptionOf("thule", wire.InstrumentEntry{Instrument: instrument, Generation: generation}, from)
		data, err := wire.Encode(d)
		if err == nil {
			_, err = kv.Put(t.Context(), d.EntryKey(), data)
		}
		if err == nil {
			_, err = kv.Put(t.Context(), instrument+".0000000000000-1", []byte(`{"format":2}`))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("mag", 2, noon.Add(time.Hour))
	put("mag", 1, noon)
	put("cam", 7, noon)

	d := descriptions.New(descriptions.Config{Site: "thule", JetStream: js, Log: slog.New(slog.DiscardHandler)})
	if all := d.All("mag"); len(all) != 0 {
		t.Errorf("before anything was read: %v", all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = d.Run(ctx) })
	await := func(what string, want ...int64) []wire.Description {
		t.Helper()
		var all []wire.Description
		for range testenv.Attempts() {
			all = d.All("mag")
			same := len(all) == len(want)
			for i := range all {
				same = same && all[i].Generation == want[i]
			}
			if same {
				return all
			}
		}
		t.Fatalf("%s: %+v, want generations %v", what, all, want)
		return nil
	}
	before := await("the first", 1, 2)
	if got, ok := d.At("cam", noon.Add(-time.Hour)); !ok || got.Generation != 7 {
		t.Errorf("the camera's: %+v", got)
	}
	if got, ok := d.At("other", noon); ok {
		t.Errorf("of another: %+v", got)
	}
	put("mag", 3, noon.Add(30*time.Minute))
	await("one between", 1, 3, 2)
	if before[1].Generation != 2 {
		t.Error("what was told before changed")
	}
	if err := js.DeleteKeyValue(t.Context(), wire.DescriptionBucket("thule")); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.DescriptionBucket("thule"), History: 1}); err != nil {
		t.Fatal(err)
	}
	put("mag", 9, noon)
	await("a bucket that was made anew", 9)
}
