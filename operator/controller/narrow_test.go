// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
)

// operatorOf is what one operator has of the Site hub.
type operatorOf struct {
	*link
	r *registryReconciler
	t *testing.T
}

var hubKey = types.NamespacedName{Namespace: "field", Name: "hub"}

func newOperatorOf(t *testing.T, js jetstream.JetStream) *operatorOf {
	t.Helper()
	all := newLinks(&wakers{}, slog.Default(), time.Now)
	l := &link{want: wanted{marker: wire.SiteMarker{Code: "hub", UID: "s-1", Namespace: "field", Name: "hub", Cluster: "here"}}, facts: all.open(hubKey),
		log: slog.Default(), now: time.Now, changed: func() {}, connected: func() {}, feedFound: func(string) {}, consumerFound: func(string) {},
		writer: all.writer, superseded: func(error) {}}
	all.sites[hubKey].link = l
	registry, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err == nil {
		err = l.readRegistry(t.Context(), js, registry)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.up(js, registry)
	return &operatorOf{link: l, t: t, r: &registryReconciler{links: all, wakers: all.wakers, log: slog.Default(), touched: &touched{}}}
}

// passes judges Instruments by name, some of them restricted, and a consumer of all.
func (o *operatorOf) passes(open []string, restricted ...string) error {
	o.t.Helper()
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: "field", UID: "s-1"}, Spec: v1alpha1.SiteSpec{Code: "hub"}}
	site.Spec.JetStream.ConsumerAccountKeySecretRef = &v1alpha1.LocalReference{Name: "consumers"}
	in := entries.Input{Site: site, Verdicts: map[string]accept.Verdict{}}
	for _, name := range slices.Concat(open, restricted) {
		inst := v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
		if slices.Contains(restricted, name) {
			inst.Generation, inst.Spec.Access.Live = 2, v1alpha1.AccessRestricted
		}
		in.Instruments = append(in.Instruments, inst)
		in.Verdicts[name] = accept.Verdict{Finding: finding.Finding{Status: metav1.ConditionTrue}, Gateway: "pool"}
	}
	in.Feeds = []v1alpha1.Feed{{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "f-1"}}}
	in.Consumers = []v1alpha1.FeedConsumer{{ObjectMeta: metav1.ObjectMeta{Name: "client", UID: "c-1"}, Spec: v1alpha1.FeedConsumerSpec{
		FeedRef: v1alpha1.LocalReference{Name: "all"}, Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}, Flow: v1alpha1.Flow{Mode: v1alpha1.FlowAll}}}}
	_, _, stands, _ := o.facts.snapshot()
	listed := accept.Listed(in.Instruments, in.Verdicts, stands.Entries)
	in.FeedsAre = accept.Feeds(site, finding.Finding{Status: metav1.ConditionTrue}, in.Feeds, in.Instruments, listed, nil)
	may := accept.AccessOf(in.Instruments, listed, stands)
	in.ConsumersAre = accept.Consumers(site, in.Feeds, in.FeedsAre, in.Consumers, nil, may, time.Now())
	o.facts.wantBus(bus.MakePlan(site, in.Feeds, in.FeedsAre, in.Consumers, in.ConsumersAre, map[string]string{"client": theDurable}))
	_, err := o.r.write(o.t.Context(), hubKey, plan.SiteView{Site: site}, in)
	return err
}

const theDurable = "c_client_0a1b2c3d4e"

func (o *operatorOf) looks() error {
	o.t.Helper()
	_, err := o.applyBusPlan(o.t.Context(), o.js, *o.facts.busPlan())
	return err
}

func (o *operatorOf) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *operatorOf) gives(want ...string) {
	o.t.Helper()
	c, err := o.js.Consumer(o.t.Context(), "OBS_hub", theDurable)
	o.must(err)
	if got := filters(c.CachedInfo().Config); !slices.Equal(got, want) {
		o.t.Errorf("the durable gives %q, want %q", got, want)
	}
}

// entry returns an Instrument's entry as it is in the bucket; nil if it has none.
func (o *operatorOf) entry(name string) *wire.InstrumentEntry {
	o.t.Helper()
	e, err := o.registry.Get(o.t.Context(), wire.RegistryInstrumentKey(name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	o.must(err)
	is, err := wire.Decode[wire.InstrumentEntry](e.Value())
	o.must(err)
	return &is
}

// TestDurableThatCannotBeNarrowed gives nothing until it can be: what is closed is closed, and
// nothing waits for it.
func TestDurableThatCannotBeNarrowed(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	testenv.CreateSite(t, server.JetStream(t), "hub")
	o := newOperatorOf(t, server.JetStream(t))
	o.must(o.passes([]string{"camera", "mag"}))
	o.must(o.looks())

	deafOne := newOperatorOf(t, deaf(t, server, "$JS.API.CONSUMER.CREATE.OBS_hub.>"))
	deafOne.must(deafOne.passes([]string{"mag"}, "camera", "secret"))
	if !deafOne.paused() {
		t.Error("the durable gives what is closed")
	}
	if e := deafOne.entry("secret"); e == nil || e.Generation != 2 {
		t.Errorf("secret waits for the durable: %+v", e)
	}
	_ = deafOne.looks() // it cannot be changed, and must not be resumed
	if !deafOne.paused() {
		t.Error("the durable gives what is closed, after a look")
	}

	next := newOperatorOf(t, server.JetStream(t))
	next.must(next.passes([]string{"mag"}, "camera", "secret"))
	next.must(next.looks())
	next.gives("obs.hub.mag.>")
	if next.paused() {
		t.Error("the durable gives nothing, though it was narrowed")
	}
}

func (o *operatorOf) paused() bool {
	o.t.Helper()
	c, err := o.js.Consumer(o.t.Context(), "OBS_hub", theDurable)
	o.must(err)
	return c.CachedInfo().Paused
}

// TestClosingWaitsForDurables: while a durable can neither be narrowed nor be paused, gateways get no entry of an Instrument that its
// consumer may not read, they get the others, and one that is closed is closed to all other consumers. The next operator completes the
// change, wherever this one ended.
func TestClosingWaitsForDurables(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	testenv.CreateSite(t, server.JetStream(t), "hub")
	o := newOperatorOf(t, server.JetStream(t))
	o.must(o.passes([]string{"camera", "mag"}))
	o.must(o.looks())
	o.gives("obs.hub.*.>")

	deafOne := newOperatorOf(t, deaf(t, server, "$JS.API.CONSUMER.CREATE.OBS_hub.>", "$JS.API.CONSUMER.PAUSE.OBS_hub.>"))
	if err := deafOne.passes([]string{"mag", "new"}, "camera", "secret"); !errors.Is(err, errHeld) {
		t.Fatalf("error %v, want %v", err, errHeld)
	}
	deafOne.gives("obs.hub.*.>")
	if e := deafOne.entry("secret"); e != nil {
		t.Errorf("gateways receive from secret: %+v", e)
	}
	if e := deafOne.entry("new"); e == nil || e.Generation != 1 {
		t.Errorf("new waits, too: %+v", e)
	}
	if e := deafOne.entry("camera"); e == nil || !e.Access.Closed() || e.Generation != 1 {
		t.Errorf("camera is not closed, or said to be programmed: %+v", e)
	}

	next := newOperatorOf(t, server.JetStream(t))
	next.must(next.passes([]string{"mag", "new"}, "camera", "secret"))
	next.gives("obs.hub.mag.>", "obs.hub.new.>")
	for _, name := range []string{"camera", "secret"} {
		if e := next.entry(name); e == nil || !e.Access.Closed() || e.Generation != 2 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestOperatorThatLeadsNoMore gives nothing that another one has closed since.
func TestOperatorThatLeadsNoMore(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	testenv.CreateSite(t, server.JetStream(t), "hub")
	first, second := newOperatorOf(t, server.JetStream(t)), newOperatorOf(t, server.JetStream(t))
	first.must(first.passes([]string{"camera"}))
	first.must(first.looks())
	first.gives("obs.hub.*.>")

	second.must(second.readRegistry(t.Context(), second.js, second.registry))
	second.must(second.passes([]string{"camera"}, "secret"))
	second.gives("obs.hub.camera.>")

	// The first one was in the middle of a look, with what it planned before.
	if err := first.looks(); !errors.Is(err, errOutdated) {
		t.Errorf("error %v, want %v", err, errOutdated)
	}
	second.gives("obs.hub.camera.>")
	first.must(first.js.DeleteConsumer(t.Context(), "OBS_hub", theDurable))
	if err := first.looks(); !errors.Is(err, errOutdated) {
		t.Errorf("error %v, want %v", err, errOutdated)
	}
	second.must(second.looks())
	second.gives("obs.hub.camera.>")

	// One operator has read the current state, and another closes something while its change is on the way.
	third := newOperatorOf(t, server.JetStream(t))
	b := &busKeeper{link: third.link, js: third.js}
	d := bus.Durable{Stream: "OBS_hub", Name: theDurable, Subjects: []string{"obs.hub.*.>"}}
	_, err := b.guardWidening(t.Context(), d, []string{"obs.hub.camera.>"}, func() (*jetstream.ConsumerInfo, error) {
		second.must(second.passes([]string{"camera"}, "secret", "secret-2"))
		c, err := third.js.Consumer(t.Context(), "OBS_hub", theDurable)
		third.must(err)
		is := c.CachedInfo().Config
		is.FilterSubject, is.FilterSubjects = "", d.Subjects
		c, err = third.js.UpdateConsumer(t.Context(), "OBS_hub", is)
		third.must(err)
		return c.CachedInfo(), nil
	})
	if !errors.Is(err, errOutdated) {
		t.Errorf("error %v, want %v", err, errOutdated)
	}
	second.gives("obs.hub.camera.>")
}

// TestPlanIsReplaced: what a look has begun with is no more what it changes durables to, once
// another plan is in force.
func TestPlanIsReplaced(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	testenv.CreateSite(t, server.JetStream(t), "hub")
	o := newOperatorOf(t, server.JetStream(t))
	o.must(o.passes([]string{"camera"}))
	old := *o.facts.busPlan()
	o.must(o.passes([]string{"camera"}, "secret"))
	if _, err := o.applyBusPlan(t.Context(), o.js, old); err != nil {
		t.Fatal(err)
	}
	o.gives("obs.hub.camera.>")
}
