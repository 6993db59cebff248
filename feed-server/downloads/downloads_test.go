// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

// stored returns what the bucket says of an instrument, all incarnations together.
func stored(t *testing.T, js jetstream.JetStream, instrument string) map[who]wire.DownloadCount {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), wire.DownloadsBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := map[who]wire.DownloadCount{}
	for key := range keys.Keys() {
		of, _, err := wire.ParseDownloadsKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if of != instrument {
			continue
		}
		e, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		d, err := wire.Decode[wire.Downloads](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range d.By {
			w := who{c.Reader, c.Class}
			sum[w] = c.Plus(sum[w])
		}
	}
	return sum
}

func counter(js jetstream.JetStream, incarnation string) *Counter {
	return New(Config{Site: site, Pod: "feed-0", Incarnation: incarnation, JetStream: js, Logger: slog.New(slog.DiscardHandler),
		Known: func(instrument string) bool { return instrument == "allsky-1" }, Interval: 5 * time.Millisecond})
}

// TestCount: what many ask at once is counted once, by two incarnations, whenever it is written.
func TestCount(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	for _, incarnation := range []string{"one", "two"} {
		c := counter(js, incarnation)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = c.Run(ctx) }()
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				for range 250 {
					c.Count("allsky-1", "", endpoint.Person, 200, 1000)
					c.Count("allsky-1", "", endpoint.Person, 304, 0)
					c.Count("allsky-1", "model", endpoint.Person, 403, 10)
					c.Count("nobody", "", endpoint.Person, 404, 10)
					c.Count("", "", endpoint.Person, 200, 10)
				}
			})
		}
		asking.Wait()
		stop()
		<-ended
	}
	person := endpoint.Person.String()
	want := map[who]wire.DownloadCount{
		{"", person}:      {Class: person, Requests: 4000, NotModified: 2000, Bytes: 2_000_000},
		{"model", person}: {Reader: "model", Class: person, Requests: 2000, Refused: 2000, Bytes: 20_000},
	}
	if diff := cmp.Diff(want, stored(t, js, "allsky-1")); diff != "" {
		t.Errorf("of the instrument (-want +got):\n%s", diff)
	}
	want = map[who]wire.DownloadCount{{"", person}: {Class: person, Requests: 4000, Refused: 2000, Bytes: 40_000}}
	if diff := cmp.Diff(want, stored(t, js, wire.NoInstrument)); diff != "" {
		t.Errorf("of none (-want +got):\n%s", diff)
	}
	if got := stored(t, js, "nobody"); len(got) > 0 {
		t.Errorf("of what is no instrument: %v", got)
	}
}

// TestCountOfAnEndedWrite: what a write that was ended midway did not reach belongs to the next one.
func TestCountOfAnEndedWrite(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	c := counter(js, "one")
	c.Count("allsky-1", "", endpoint.Person, 200, 1000)
	c.Count("", "", endpoint.Person, 200, 10)
	if err := c.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Count("allsky-1", "", endpoint.Person, 200, 1000)
	c.Count("", "", endpoint.Person, 200, 10)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := c.write(ended); err == nil {
		t.Error("a write whose context has ended: no error")
	}
	if got := len(c.take()); got != 2 {
		t.Errorf("%d instruments are left to be written, not 2", got)
	}
}

// TestManyReaders: the counts of one day are bounded, and nothing is left out.
func TestManyReaders(t *testing.T) {
	c := counter(nil, "one")
	for i := range 1000 {
		c.Count("allsky-1", string(rune('a'+i%26))+string(rune('a'+i/26)), endpoint.Person, 200, 1)
	}
	sum, others := uint64(0), uint64(0)
	for _, d := range c.take() {
		if len(d.By) > wire.MaxDownloadCounts+1 {
			t.Errorf("%d counts", len(d.By))
		}
		for _, count := range d.By {
			sum += count.Requests
			if count.Reader == wire.OtherReaders {
				others += count.Requests
			}
		}
	}
	if sum != 1000 || others == 0 {
		t.Errorf("%d requests, %d of them of others", sum, others)
	}
}
