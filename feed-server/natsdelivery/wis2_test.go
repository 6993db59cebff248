// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A consumer of WIS2 notifications finds the newest of each instrument in its stream, and
// then each one, also where it was away, and where another feed server takes over.
func TestWIS2(t *testing.T) {
	l, _ := oneServer(t)
	l.announce("camera-2", 7) // before there was the consumer
	l.declare(wire.ConsumerEntry{Consumer: "machines", NoTelemetry: true, WIS2: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	first := l.serve("pod-0")
	held := func() uint64 {
		s, err := l.js.Stream(t.Context(), wire.ConsumerStream(site, "machines"))
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Msgs
	}
	testenv.Await(t, "the newest of before is there", func() bool { return held() == 1 })
	for i := range 50 {
		l.announce(camera, i)
	}
	l.telemetry(mag, 0, 5)
	marked := l.notice(camera, 3)
	marked.State, marked.DuplicateOf = wire.StateDuplicate, "x"
	l.publishNotice(marked)
	testenv.Await(t, "all is there", func() bool { return held() == 51 })
	first.stop()
	l.serve("pod-1")
	for i := range 50 {
		l.announce(camera, 50+i)
	}
	var mu sync.Mutex
	told := map[string]int{}
	js, err := jetstream.NewWithAPIPrefix(l.connect("machines"), wire.ConsumerAPI)
	if err != nil {
		t.Fatal(err)
	}
	durable, err := js.Consumer(t.Context(), wire.ConsumerStream(site, "machines"), wire.ConsumerDurable("machines", issue))
	if err != nil {
		t.Fatal(err)
	}
	taking, err := durable.Consume(func(m jetstream.Msg) {
		var n wis2.Message
		if err := json.Unmarshal(m.Data(), &n); err != nil {
			t.Errorf("%s: %v", m.Data(), err)
		}
		h := m.Headers()
		if !strings.HasPrefix(n.Links[0].Href, "https://archive.example.org/archive/") || h.Get(wire.HeaderType) != "int.wmo.wis.wnm.v1" || h.Get(wire.HeaderContentType) != "application/geo+json" || h.Get(wire.HeaderID) != n.ID || n.ConformsTo == nil {
			t.Errorf("%v %s", h, m.Data())
		}
		mu.Lock()
		defer mu.Unlock()
		told[strings.TrimPrefix(n.Properties.MetadataID, "urn:wmo:md:"+site+":")+" "+n.Properties.Integrity.Value]++
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer taking.Stop()
	want := map[string]int{}
	expect := func(instrument string, number int) {
		digest := l.notice(instrument, number).Digest
		want[instrument+" "+base64.StdEncoding.EncodeToString(digest[:])] = 1
	}
	expect("camera-2", 7)
	for i := range 100 {
		expect(camera, i)
	}
	testenv.Await(t, "all is told", func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == len(want) })
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +told):\n%s", diff)
	}
}
