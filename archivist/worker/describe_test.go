// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// TestDescriptions: what an instrument says is archived by one incarnation of the archivist,
// and not again by another.
func TestDescriptions(t *testing.T) {
	l := start(t).site(t, "thule")
	entry := func(instrument string) wire.InstrumentEntry {
		return wire.InstrumentEntry{UID: "u", Generation: 1, Instrument: instrument, Rights: &wire.RightsEntry{License: "CC0-1.0"}}
	}
	config := func(gateway string, declared ...wire.InstrumentEntry) Config {
		cfg := l.config(gateway)
		cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return declared, true }
		cfg.DescribeInterval = 20 * time.Millisecond
		return cfg
	}
	told := func(instrument string) (count int) {
		kv, err := l.js.KeyValue(t.Context(), wire.DescriptionBucket(l.site))
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Entries(t.Context(), l.js, kv, instrument+".>", func(jetstream.KeyValueEntry) error { count++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	stop := l.run(config("a", entry(camera)))
	l.await("the camera's", func() bool { return told(camera) == 1 })
	stop()
	l.run(config("b", entry(camera), entry("mag-1")))
	l.await("the magnetometer's", func() bool { return told("mag-1") == 1 })
	if n := told(camera); n != 1 {
		t.Errorf("the camera has %d", n)
	}
}
