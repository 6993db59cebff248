// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
)

// woken returns what a controller was woken for since it was last asked.
func (w *waker) woken() (names []string) {
	for w.queue.Len() > 0 {
		request, _ := w.queue.Get()
		w.queue.Done(request)
		names = append(names, request.Name)
	}
	slices.Sort(names)
	return names
}

// TestRevisionWakesWhoWaits: a pod of a gateway or feed server that runs another revision of the registry, and reports nothing else that is
// new, wakes only the resources that wait for that. Any other change in a report wakes all resources that it may concern.
func TestRevisionWakesWhoWaits(t *testing.T) {
	wakers, now := &wakers{}, time.Now()
	for _, w := range []*waker{&wakers.gateways, &wakers.servers, &wakers.instruments, &wakers.consumers} {
		w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(w.queue.ShutDown)
	}
	f := newLinks(wakers, slog.New(slog.DiscardHandler), time.Now).open(types.NamespacedName{Namespace: "field", Name: "hub"})
	accepted := finding.Finding{Status: metav1.ConditionTrue}
	verdicts := map[string]accept.Verdict{"waits": {Finding: accepted, Gateway: "pool"}, "follows": {Finding: accepted, Gateway: "pool"}, "elsewhere": {Finding: accepted, Gateway: "other"}}
	consumers := map[string]accept.ConsumerVerdict{"waits-too": {Finding: accepted}, "served": {Finding: accepted}}
	in := entries.Input{Verdicts: verdicts, ConsumersAre: consumers}
	for name := range verdicts {
		in.Instruments = append(in.Instruments, v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name := range consumers {
		in.Consumers = append(in.Consumers, v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	f.judge(in.Instruments, verdicts)
	f.judgeFeeds(in)
	f.settle(kindInstrument, "waits", false)
	f.settle(kindInstrument, "elsewhere", false)
	f.settle(kindFeedConsumer, "waits-too", false)

	gateway := wire.GatewayStatus{Gateway: "pool-0", Pool: "pool", Incarnation: "1", StartedAt: now, ReportedAt: now, Datapath: "Kernel"}
	server := wire.FeedServerStatus{Pod: "server-0", FeedServer: "server", Incarnation: "1", StartedAt: now, ReportedAt: now}
	report := func() (woken [4][]string) {
		t.Helper()
		value, err := wire.Encode(gateway)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.reports.takeGateway(gateway.Gateway, value, now, now); err != nil {
			t.Fatal(err)
		}
		if value, err = wire.Encode(server); err != nil {
			t.Fatal(err)
		}
		if err := f.reports.takeFeedServer(server.Pod, value, now, now); err != nil {
			t.Fatal(err)
		}
		return [4][]string{wakers.gateways.woken(), wakers.servers.woken(), wakers.instruments.woken(), wakers.consumers.woken()}
	}
	all := [4][]string{{"pool"}, {"server"}, {"follows", "waits"}, {"served", "waits-too"}}
	for _, step := range []struct {
		what   string
		change func()
		want   [4][]string
	}{
		{"the first report", func() {}, all},
		{"the same again", func() { gateway.ReportedAt, server.ReportedAt = now.Add(time.Second), now.Add(time.Second) }, [4][]string{}},
		{"another revision", func() { gateway.Revision, server.Revision = 7, 7 }, [4][]string{2: {"waits"}, 3: {"waits-too"}}},
		{"another revision, for which the pool waits", func() {
			f.settle(kindIngestGateway, "pool", false)
			gateway.Revision, server.Revision = 8, 8
		}, [4][]string{0: {"pool"}, 2: {"waits"}, 3: {"waits-too"}}},
		{"another revision, for which nobody waits", func() {
			for kind, name := range map[string]string{kindIngestGateway: "pool", kindInstrument: "waits", kindFeedConsumer: "waits-too"} {
				f.settle(kind, name, true)
			}
			gateway.Revision, server.Revision = 9, 9
		}, [4][]string{}},
		{"it began anew", func() { gateway.Incarnation, server.Incarnation = "2", "2" }, all},
		{"a problem", func() {
			gateway.Problems, server.Problems = map[string]string{"waits": "full"}, map[string]string{"served": "full"}
		}, all},
	} {
		step.change()
		if diff := cmp.Diff(step.want, report()); diff != "" {
			t.Errorf("%s: woken (-want +got; pools, FeedServers, Instruments, FeedConsumers)\n%s", step.what, diff)
		}
	}
}
