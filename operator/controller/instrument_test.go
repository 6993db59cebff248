// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

func (w *world) instrument(name string) *v1alpha1.Instrument {
	return &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
}

func TestInstrumentFromApplyToData(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applyInstrument("camera", first, ", cadence: {interval: 2s}")
	c := w.awaits("Instrument", "camera", "Accepted", "False/SiteNotFound")
	says(t, c, `Site "hub" does not exist`, "create it")
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	c = w.awaits("Instrument", "camera", "Accepted", "False/GatewayNotFound")
	says(t, c, `Site "hub" has no IngestGateway`, "create one")

	changes := w.changes("hub")
	w.applyPool("pool", ports)
	g := w.gateway("pool", "pool-0")
	entry := g.awaitPort("camera", first)
	if entry.UID != string(w.object("Instrument", "camera").GetUID()) || entry.Gateway != "pool" || entry.CadenceMillis != 2000 || entry.Acknowledge != "StoredOrSpooled" {
		t.Errorf("entry: %+v", entry)
	}
	c = w.awaits("Instrument", "camera", "Ready", "False/NotReported")
	says(t, c, `IngestGateway "pool"`)

	stop := g.follow()
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	w.awaits("Instrument", "camera", "DataFlowing", "False/NeverSeen")
	w.readyPod("pool", "pool-0", "192.0.2.11")
	eventually(t, "addresses", func() error {
		var s v1alpha1.InstrumentStatus
		w.status("Instrument", "camera", &s)
		want := []v1alpha1.ListenerAddress{{Address: fmt.Sprintf("192.0.2.11:%d", first)}}
		if len(s.Listeners) != 1 || s.Listeners[0].Name != "tcp" {
			return fmt.Errorf("listeners: %+v", s.Listeners)
		}
		if diff := cmp.Diff(want, s.Listeners[0].Addresses); diff != "" {
			return errors.New(diff)
		}
		return nil
	})

	quiet := g.receiving("camera", 7)
	w.awaits("Instrument", "camera", "DataFlowing", "True/Flowing")
	w.awaits("Site", "hub", "DataFlowing", "True/Flowing")
	quiet()
	c = w.awaits("Instrument", "camera", "DataFlowing", "False/Overdue")
	says(t, c, "nothing was received since", "every 2s")
	w.awaits("Site", "hub", "DataFlowing", "False/Overdue")
	quiet = g.receiving("camera", 8)
	w.awaits("Instrument", "camera", "DataFlowing", "True/Flowing")
	quiet()
	var s v1alpha1.InstrumentStatus
	w.status("Instrument", "camera", &s)
	if s.ReceivedToday == nil || s.ReceivedToday.ObjectCount != 8 || s.ReceivedToday.Bytes != 8000 || s.ReceivedToday.Day != string(wire.DayOf(time.Now())) {
		t.Errorf("receivedToday: %+v", s.ReceivedToday)
	}
	if s.LastReceivedTime == nil || s.LastReceivedTime.Minute()%10 != 0 || s.LastReceivedTime.Second() != 0 {
		t.Errorf("lastReceivedTime is not rounded to ten minutes: %v", s.LastReceivedTime)
	}

	w.awaits("Instrument", "camera", "ClockTrusted", "Unknown/NoHeartbeat")
	g.heard("camera", -time.Hour)
	c = w.awaits("Instrument", "camera", "ClockTrusted", "False/ClockOff")
	says(t, c, "1h0m0s ahead", "spec.clock.maxSkew (2s)")
	g.heard("camera", time.Second)
	w.awaits("Instrument", "camera", "ClockTrusted", "True/WithinMaxSkew")
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	w.status("Instrument", "camera", &s)
	if s.Sender == nil || s.Sender.QueueObjectCount != 7 || s.Sender.ClockOffset == nil || s.Sender.ClockOffset.Duration != time.Second {
		t.Errorf("sender: %+v", s.Sender)
	}

	another := w.gateway("pool", "pool-1") // receives another sender
	another.heard("camera", -5*time.Second)
	c = w.awaits("Instrument", "camera", "ClockTrusted", "False/ClockOff")
	says(t, c, "5s ahead")
	w.status("Instrument", "camera", &s)
	if s.Sender == nil || s.Sender.QueueObjectCount != 14 || s.Sender.ClockOffset == nil || s.Sender.ClockOffset.Duration != -5*time.Second {
		t.Errorf("of two senders: %+v", s.Sender)
	}
	another.heard("camera", 0)
	w.awaits("Instrument", "camera", "ClockTrusted", "True/WithinMaxSkew")

	stop()
	w.awaits("Instrument", "camera", "Ready", "False/NotReported")
	c = w.awaits("Instrument", "camera", "DataFlowing", "Unknown/NoReport")
	says(t, c, `IngestGateway "pool"`)
	w.awaits("Site", "hub", "DataFlowing", "Unknown/NoReport")
	g.follow()
	w.awaits("Instrument", "camera", "Ready", "True/Ready")

	w.sawChange(changes, "camera", "DataFlowing", "True/Flowing")
	w.sawChange(changes, "camera", "DataFlowing", "False/Overdue")
	w.sawEvent("camera", "DataFlowing", "Overdue", "Warning")
	w.sawEvent("camera", "Ready", "Ready", "Normal")
}

// changes collects what is published on the Site's health subjects.
func (w *world) changes(code string) *nats.Subscription {
	w.t.Helper()
	nc := w.nats.Connect(w.t)
	sub, err := nc.SubscribeSync(wire.HealthSubjects(code))
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return sub
}

// sawChange looks for the next message about a condition.
func (w *world) sawChange(sub *nats.Subscription, name, condition, want string) {
	w.t.Helper()
	for {
		m, err := sub.NextMsg(patience)
		if err != nil {
			w.t.Fatalf("no message says that %s of %s is %s: %v", condition, name, want, err)
		}
		c, err := wire.Decode[wire.ConditionChange](m.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Name != name || c.Condition != condition || c.Status+"/"+c.Reason != want {
			continue
		}
		if m.Subject != "health.hub.instrument."+name || m.Header.Get(wire.HeaderType) != wire.TypeCondition ||
			m.Header.Get(wire.HeaderID) == "" || m.Header.Get(wire.HeaderSpecVersion) != "1.0" || c.UID == "" || c.Namespace != w.namespace {
			w.t.Errorf("message on %s: %v %+v", m.Subject, m.Header, c)
		}
		return
	}
}

func (w *world) sawEvent(name, condition, reason, kind string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("event %s of %s", reason, name), func() error {
		var events eventsv1.EventList
		if err := w.List(w.t.Context(), &events, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for i := range events.Items {
			e := &events.Items[i]
			if e.Regarding.Name == name && e.Action == condition && e.Reason == reason && e.Type == kind {
				return nil
			}
		}
		return fmt.Errorf("none among %d events", len(events.Items))
	})
}

func TestInstrumentChangesItsPort(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	w.applyInstrument("camera", first, "")
	g := w.gateway("pool", "pool-0")
	g.follow()
	before := g.awaitPort("camera", first)
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	kv, err := g.js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.Watch(t.Context(), wire.RegistryInstrumentKey("camera"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Stop() }()
	for entry := range watcher.Updates() {
		if entry == nil {
			break // the current entries were received
		}
	}
	for i := 1; i <= 5; i++ {
		w.applyInstrument("camera", first+i, "")
		answered := time.Now()
		<-watcher.Updates()
		t.Logf("in the registry %v after the API server's answer", time.Since(answered).Round(100*time.Microsecond))
	}
	after := g.awaitPort("camera", first+5)
	if after.Revision <= before.Revision || after.Generation != before.Generation+5 {
		t.Errorf("entry %+v after %+v", after, before)
	}
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
}

func TestInstrumentsContradict(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, last, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	g := w.gateway("pool", "pool-0")
	g.follow()
	w.applyInstrument("camera", first, "")
	g.awaitPort("camera", first)
	w.ages("Instrument", "camera")
	w.applyInstrument("aurora", first, "")
	c := w.awaits("Instrument", "aurora", "Accepted", "False/Conflict")
	says(t, c, fmt.Sprint("TCP port ", first), `the older Instrument "camera"`, "choose another port")
	w.awaits("Instrument", "aurora", "Stalled", "True/Conflict")
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	g.awaitNoEntry("aurora", 1)

	w.applyInstrument("aurora", last+1, "")
	c = w.awaits("Instrument", "aurora", "Accepted", "False/PortOutOfRange")
	says(t, c, fmt.Sprint("TCP port ", last+1), fmt.Sprintf("%d-%d", first, last), `IngestGateway "pool"`)

	w.applyInstrument("aurora", first, "") // until the older one goes
	w.awaits("Instrument", "aurora", "Accepted", "False/Conflict")
	w.remove(w.instrument("camera"))
	g.awaitPort("aurora", first)
	w.awaits("Instrument", "aurora", "Ready", "True/Ready")
}

func TestInstrumentDeletedAndMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	w.applyInstrument("camera", first, "")
	g := w.gateway("pool", "pool-0")
	g.follow()
	before := g.awaitPort("camera", first)
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	if _, err := g.js.Publish(t.Context(), wire.NoticeSubject("hub", "camera"), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	w.remove(w.instrument("camera"))
	g.awaitNoEntry("camera", 0)
	w.applyInstrument("camera", first, "")
	after := g.awaitPort("camera", first)
	if after.UID == before.UID || after.Revision <= before.Revision {
		t.Errorf("entry %+v after %+v", after, before)
	}
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	if s, err := g.js.Stream(t.Context(), "NOTICE_hub"); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("what was announced is gone: %v", err)
	}
}

func TestManyInstrumentsAtOnce(t *testing.T) {
	const many = 40
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	g := w.gateway("pool", "pool-0")
	g.follow()
	for i := range many {
		cadence := ""
		if i == 4 {
			cadence = ", cadence: {interval: 2s}" // this one is silent soon
		}
		w.applyInstrument(fmt.Sprintf("camera-%d", i), first, cadence)
		u := w.instrument(fmt.Sprintf("camera-%d", i))
		patch := fmt.Appendf(nil, `{"spec":{"listeners":[{"name":"frames","protocol":"TCP","port":%d,"sources":["192.0.2.%d/32"]}]}}`, first, i)
		if err := w.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		w.awaits("Instrument", fmt.Sprintf("camera-%d", i), "Ready", "True/Ready")
	}
	c, err := g.complete()
	if err != nil || c.Count != many {
		t.Errorf("the registry: %+v, %v", c, err)
	}
	eventually(t, "the Site should count them", func() error {
		var s v1alpha1.SiteStatus
		w.status("Site", "hub", &s)
		if s.InstrumentSummary == nil || s.InstrumentSummary.TotalCount != many {
			return fmt.Errorf("it counts %+v", s.InstrumentSummary)
		}
		return nil
	})
	w.awaits("Instrument", "camera-4", "DataFlowing", "False/NeverSeen")
	g.received("camera-3", 0, 1)
	w.awaits("Instrument", "camera-3", "DataFlowing", "True/Flowing")
	eventually(t, "the Site should count who flows and who is silent", func() error {
		g.received("camera-3", 0, 1) // it stays no longer than its cadence
		var s v1alpha1.SiteStatus
		w.status("Site", "hub", &s)
		// On a slow machine more than camera-4 are silent by now, and the Site has to count just those.
		want := v1alpha1.InstrumentSummary{TotalCount: many, FlowingCount: 1}
		for i := range many {
			var of v1alpha1.InstrumentStatus
			w.status("Instrument", fmt.Sprintf("camera-%d", i), &of)
			if c := meta.FindStatusCondition(of.Conditions, v1alpha1.ConditionDataFlowing); c != nil && c.Status == metav1.ConditionFalse {
				want.SilentCount++
			}
		}
		if *s.InstrumentSummary != want || want.SilentCount == 0 {
			return fmt.Errorf("it counts %+v, want %+v", *s.InstrumentSummary, want)
		}
		return nil
	})
	w.hasMetric("substorm_instrument_data_flowing", "camera-3", 1)
	w.hasMetric("substorm_instrument_data_flowing", "camera-4", 0)
	w.hasMetric("substorm_gateway_registry_revision", "pool-0", float64(c.Revision))
}

// hasMetric looks for a gauge one of whose labels has a value.
func (w *world) hasMetric(name, label string, want float64) {
	w.t.Helper()
	families, err := prometheus.Gatherer(w.metrics).Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					if got := m.GetGauge().GetValue(); got != want {
						w.t.Errorf("%s of %s is %v, and should be %v", name, label, got, want)
					}
					return
				}
			}
		}
	}
	w.t.Errorf("there is no %s of %s", name, label)
}
