// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestSampling: the declared sampling of an Instrument reaches the registry, and its status shows what is asked, of which sender, what is
// done and the state of the path, soon after a gateway reports a change.
func TestSampling(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	g := w.gateway("pool", "pool-0")
	sample := func(spec string, want int64) {
		t.Helper()
		w.applyInstrument("mag", first, ", sampling: "+spec)
		eventually(t, "the registry says so", func() error {
			e, err := g.entry("mag")
			if err == nil && (e.Sampling == nil || e.Sampling.Channels[0].IntervalMillis != want) {
				err = fmt.Errorf("it says %+v", e.Sampling)
			}
			return err
		})
	}
	sample("{interval: 10s}", 10_000)
	sample("{interval: 5s, consumerRequests: Allow}", 5000)
	g.follow()
	w.awaits("Instrument", "mag", "Ready", "True/Ready")

	says := func(what string, is func(s *v1alpha1.InstrumentStatus) bool) {
		t.Helper()
		eventually(t, what, func() error {
			var s v1alpha1.InstrumentStatus
			w.status("Instrument", "mag", &s)
			if s.Sampling == nil || len(s.Sampling.Channels) != 1 || !is(&s) {
				return fmt.Errorf("status.sampling %+v, path %+v", s.Sampling, s.LinkProbe)
			}
			return nil
		})
	}
	says("what is declared", func(s *v1alpha1.InstrumentStatus) bool {
		return s.Sampling.Outcome == "" && s.Sampling.Channels[0].Asked.Duration == 5*time.Second && s.LinkProbe == nil
	})
	asked := []wire.ChannelSampling{{State: wire.SamplingObserving, IntervalMillis: 1000, By: "browser"}}
	report := func(obeys int64) {
		t.Helper()
		s := wire.SenderStatus{Gateway: "pool-0", Sender: "field", ReportedAt: time.Now(), Asked: asked,
			Sampling:  &wire.SamplingReport{Obeys: []wire.ChannelSampling{{State: wire.SamplingObserving, IntervalMillis: obeys}}, Achieved: []wire.AchievedSampling{{Interval: wire.Span(1100 * time.Millisecond)}}},
			LinkProbe: &wire.LinkProbe{To: "192.0.2.1:30862", Sent: 100, Answered: 90, LostOut: 10}}
		data, err := wire.Encode(s)
		if err == nil {
			err = g.put(wire.StatusBucket("hub"), wire.SenderStatusKey("mag", "pool-0"), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	report(5000)
	says("a consumer asks, and the sender has not come to it yet", func(s *v1alpha1.InstrumentStatus) bool {
		c := s.Sampling.Channels[0]
		return s.Sampling.Outcome == v1alpha1.SamplingNotFollowed && c.AskedBy == "browser" && c.Asked.Duration == time.Second
	})
	report(1000)
	says("it follows", func(s *v1alpha1.InstrumentStatus) bool {
		c := s.Sampling.Channels[0]
		return s.Sampling.Outcome == v1alpha1.SamplingFollowed && c.Achieved != nil && c.Achieved.Duration == 1100*time.Millisecond &&
			s.LinkProbe != nil && s.LinkProbe.LossPerMille == 100 && s.LinkProbe.LossOutPerMille == 100 && s.LinkProbe.Address == "192.0.2.1:30862"
	})
	kv, err := w.nats.JetStream(t).KeyValue(t.Context(), wire.RequestBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	if status, err := kv.Status(t.Context()); err != nil || status.TTL() != wire.RequestTTL {
		t.Errorf("the bucket of requests: %+v, %v", status, err)
	}
}
