// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// largeSite is 10,000 Instruments in 40 pools, 200 Feeds, every fifth of which selects everything, and 500 FeedConsumers.
func largeSite() (in entries.Input, gateways []v1alpha1.IngestGateway) {
	named := func(format string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "hub", Name: fmt.Sprintf(format, i), UID: "1", Generation: 1}
	}
	ref := v1alpha1.LocalReference{Name: "hub"}
	in.Site = &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: "hub"}, Spec: v1alpha1.SiteSpec{Code: "hub"}}
	for i := range 40 {
		gateways = append(gateways, v1alpha1.IngestGateway{ObjectMeta: named("pool-%d", i), Spec: v1alpha1.IngestGatewaySpec{SiteRef: ref, Ports: v1alpha1.PortRange{First: 20000, Last: 20255}}})
	}
	for i := range 10_000 {
		inst := v1alpha1.Instrument{ObjectMeta: named("instrument-%d", i)}
		inst.Labels = map[string]string{"group": fmt.Sprint(i % 50), "station": fmt.Sprint(i / 20)}
		inst.Spec.SiteRef, inst.Spec.GatewayRef = ref, &v1alpha1.LocalReference{Name: gateways[i%40].Name}
		inst.Spec.Listeners = []v1alpha1.Listener{{Name: "frames", Protocol: v1alpha1.ListenerTCP, Port: int32(20000 + i/40), TCP: &v1alpha1.TCPListener{}}}
		in.Instruments = append(in.Instruments, inst)
	}
	for i := range 200 {
		feed := v1alpha1.Feed{ObjectMeta: named("feed-%d", i), Spec: v1alpha1.FeedSpec{SiteRef: ref}}
		if i%5 > 0 {
			feed.Spec.Selector.MatchLabels = map[string]string{"group": fmt.Sprint(i % 50)}
		}
		in.Feeds = append(in.Feeds, feed)
	}
	for i := range 500 {
		c := v1alpha1.FeedConsumer{ObjectMeta: named("consumer-%d", i)}
		c.Spec.FeedRef.Name = in.Feeds[i%200].Name
		in.Consumers = append(in.Consumers, c)
	}
	return in, gateways
}

// BenchmarkPass measures how long the planners take to judge a whole Site with one new Instrument.
func BenchmarkPass(b *testing.B) {
	in, gateways := largeSite()
	now := time.Now()
	accepted := finding.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}
	judge := func(stands observed.RegistryState) entries.Change {
		in.Verdicts = accept.Instruments(in.Site, accepted, gateways, in.Instruments, in.Secrets)
		listed := accept.Listed(in.Instruments, in.Verdicts, stands.Entries)
		in.FeedsAre = accept.Feeds(in.Site, accepted, in.Feeds, in.Instruments, listed, nil)
		may := accept.AccessOf(in.Instruments, listed, stands)
		in.ConsumersAre = accept.Consumers(in.Site, in.Feeds, in.FeedsAre, in.Consumers, nil, may, now)
		streams := bus.MakePlan(in.Site, in.Feeds, in.FeedsAre, in.Consumers, in.ConsumersAre, nil)
		bus.MayRead(streams, in.Feeds, in.Consumers, in.Instruments, may, now)
		return entries.Plan(in, stands, nil, 1)
	}
	first := judge(observed.RegistryState{})
	stands := observed.RegistryState{Entries: map[string]wire.InstrumentEntry{}, Feeds: map[string]wire.FeedEntry{}, Consumers: map[string]wire.ConsumerEntry{}}
	for _, e := range first.Put[1:] {
		stands.Entries[e.Instrument] = e
	}
	for _, e := range first.PutFeeds {
		stands.Feeds[e.Feed] = e
	}
	for _, e := range first.PutConsumers {
		stands.Consumers[e.Consumer] = e
	}
	for b.Loop() {
		if change := judge(stands); len(change.Put) != 1 || len(change.PutFeeds)+len(change.PutConsumers) > 0 {
			b.Fatalf("%d entries, %d of Feeds and %d of consumers change", len(change.Put), len(change.PutFeeds), len(change.PutConsumers))
		}
	}
}
