// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestSurge: a source reports a storm, and pools have as many pods as its level asks for, until no level asks any more. If a FeedServer
// itself asks for more, that number stays. A source that fails lowers nothing.
func TestSurge(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.awaits("Site", "hub", "Ready", "True/Ready")
	var failing atomic.Bool
	var kp atomic.Value
	kp.Store("7.33")
	noaa := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(out, "no", http.StatusInternalServerError)
			return
		}
		began := time.Now().UTC().Truncate(3 * time.Hour)
		_, _ = fmt.Fprintf(out, `[{"time_tag":%q,"Kp":%s,"a_running":80,"station_count":8}]`, began.Format("2006-01-02T15:04:05"), kp.Load())
	}))
	t.Cleanup(noaa.Close)
	w.awaitServers(1)
	w.patchSite(fmt.Sprintf(`{"spec":{
		"spaceWeather":{"sources":[{"name":"kp","type":"PlanetaryKIndex","pollInterval":"10s","planetaryKIndex":{"url":%q}}]},
		"surge":{"levels":[
			{"name":"storm","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"5"}]}],"floors":[{"kind":"FeedServer","replicas":4}]},
			{"name":"severe","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"9"}]}],"floors":[{"kind":"FeedServer","replicas":8}]}]}}}`, noaa.URL))
	w.awaitServers(4)
	w.awaits("Site", "hub", "Surging", "True/"+v1alpha1.ReasonLevelFulfilled, "storm", "Kp 7.3")
	w.awaits("Site", "hub", v1alpha1.ConditionSpaceWeatherKnown, "True/"+v1alpha1.ReasonFresh)
	w.published(wire.SurgeLevel{Level: "storm"})
	eventually(t, "the level for pages", func() error {
		is, err := w.kept()
		if err == nil && (is.Level != "storm" || is.Since == nil || len(is.Values) != 1 || is.Values[0].Value != 7.33 || len(is.Floors) != 1 || is.Floors[0].Replicas != 4) {
			err = fmt.Errorf("it is %+v", is)
		}
		return err
	})

	kp.Store("9.0")
	w.patchSite(`{"spec":{"spaceWeather":{"sources":[{"name":"kp","type":"PlanetaryKIndex","pollInterval":"12s","planetaryKIndex":{"url":"` + noaa.URL + `"}}]}}}`)
	w.awaitServers(8)
	w.told(v1alpha1.ReasonLevelChanged, "level severe follows level storm")
	w.told(v1alpha1.ReasonFloorsChanged, "floors are FeedServer 4, and were none")
	w.told(v1alpha1.ReasonFloorsChanged, "floors are FeedServer 8, and were FeedServer 4")

	failing.Store(true)
	w.patchSite(`{"spec":{"spaceWeather":{"sources":[{"name":"kp","type":"PlanetaryKIndex","pollInterval":"11s","planetaryKIndex":{"url":"` + noaa.URL + `"}}]}}}`)
	eventually(t, "the error of the source", func() error {
		c := w.awaits("Site", "hub", v1alpha1.ConditionSpaceWeatherKnown, "Unknown/"+v1alpha1.ReasonNeverTold)
		if !strings.Contains(c.Message, "500") {
			return errors.New(c.Message)
		}
		return nil
	})
	w.awaitServers(8)

	w.patchSite(`{"spec":{"surge":null}}`)
	w.awaitServers(1)
	w.published(wire.SurgeLevel{Was: "severe"})
	eventually(t, "no level for pages", func() error {
		if is, err := w.kept(); !errors.Is(err, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("%+v, %v", is, err)
		}
		return nil
	})
}

// TestFloorWithoutPool: a Site says which pool a floor names that is not there, until it is.
func TestFloorWithoutPool(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	_, _, ports := w.ports()
	for _, c := range []struct {
		pool    string
		declare func()
	}{
		{"FeedServer", func() { w.applyServer("publik", ", replicas: 1") }},
		{"IngestGateway", func() { w.applyPool("publik", ports) }},
	} {
		w.patchSite(fmt.Sprintf(`{"spec":{
			"spaceWeather":{"sources":[{"name":"fixed","type":"Static","static":{"values":[{"quantity":"Kp","value":"2"}]}}]},
			"surge":{"levels":[{"name":"storm","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"5"}]}],"floors":[{"kind":%q,"name":"publik","replicas":2}]}]}}}`, c.pool))
		says(t, w.awaits("Site", "hub", v1alpha1.ConditionFloorWithoutPool, "True/"+v1alpha1.ReasonPoolNotFound), c.pool+"/publik", "correct the name, or declare the pool")
		c.declare()
		eventually(t, "no floor without a pool", func() error {
			if c := find(conditionsOf(w.object("Site", "hub")), v1alpha1.ConditionFloorWithoutPool); c != nil {
				return errors.New(c.Message)
			}
			return nil
		})
	}
}

// told waits for an event of the Site.
func (w *world) told(reason, text string) {
	w.t.Helper()
	eventually(w.t, "event "+reason, func() error {
		var events eventsv1.EventList
		if err := w.List(w.t.Context(), &events, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		var all []string
		for _, e := range events.Items {
			if e.Regarding.Kind == "Site" && e.Reason == reason {
				if strings.Contains(e.Note, text) {
					return nil
				}
				all = append(all, e.Note)
			}
		}
		return fmt.Errorf("none says %q: %q", text, all)
	})
}

// kept is what pages show of the Site's level.
func (w *world) kept() (wire.SurgeLevel, error) {
	w.t.Helper()
	kv, err := w.nats.JetStream(w.t).KeyValue(w.t.Context(), wire.StatusBucket("hub"))
	if err != nil {
		return wire.SurgeLevel{}, err
	}
	entry, err := kv.Get(w.t.Context(), wire.SurgeStatusKey)
	if err != nil {
		return wire.SurgeLevel{}, err
	}
	return wire.Decode[wire.SurgeLevel](entry.Value())
}

// published waits until the last change of level in the stream is one.
func (w *world) published(want wire.SurgeLevel) {
	w.t.Helper()
	eventually(w.t, "the published change of level", func() error {
		s, err := w.nats.JetStream(w.t).Stream(w.t.Context(), wire.NoticeStream("hub"))
		if err != nil {
			return err
		}
		m, err := s.GetLastMsgForSubject(w.t.Context(), wire.SurgeSubject("hub"))
		if err != nil {
			return err
		}
		is, err := wire.Decode[wire.SurgeLevel](m.Data)
		if err == nil && (is.Site != "hub" || is.Level != want.Level || is.Was != want.Was || is.Since == nil || is.Why == "" ||
			m.Header.Get(wire.HeaderType) != wire.TypeSurge || m.Header.Get(wire.HeaderID) == "" || m.Header.Get(wire.HeaderMessageID) != m.Header.Get(wire.HeaderID)) {
			err = fmt.Errorf("%+v %v", is, m.Header)
		}
		return err
	})
}
