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

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// TestSurge: a source tells of a storm, and pools have as many pods as its level asks for, until nobody asks any more. What a FeedServer asks
// for itself stays where it is more. A source that fails lowers nothing.
func TestSurge(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.awaits("Site", "hub", "Ready", "True/Ready")
	var failing atomic.Bool
	noaa := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(out, "no", http.StatusInternalServerError)
			return
		}
		began := time.Now().UTC().Truncate(3 * time.Hour)
		_, _ = fmt.Fprintf(out, `[{"time_tag":%q,"Kp":7.33,"a_running":80,"station_count":8}]`, began.Format("2006-01-02T15:04:05"))
	}))
	t.Cleanup(noaa.Close)
	pods := func(want int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d feed servers", want), func() error {
			var d appsv1.Deployment
			if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: plan.FeedServerName("hub")}, &d); err != nil {
				return err
			}
			if *d.Spec.Replicas != want {
				return fmt.Errorf("%d pods are asked for", *d.Spec.Replicas)
			}
			return nil
		})
	}
	pods(1)
	w.patchSite(fmt.Sprintf(`{"spec":{
		"spaceWeather":{"sources":[{"name":"kp","type":"PlanetaryKIndex","pollInterval":"10s","planetaryKIndex":{"url":%q}}]},
		"surge":{"levels":[
			{"name":"storm","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"5"}]}],"floors":[{"kind":"FeedServer","replicas":4}]},
			{"name":"severe","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"9"}]}],"floors":[{"kind":"FeedServer","replicas":8}]}]}}}`, noaa.URL))
	pods(4)
	says(t, w.awaits("Site", "hub", "Surging", "True/"+v1alpha1.ReasonLevelFulfilled), "storm", "Kp 7.3")
	w.awaits("Site", "hub", v1alpha1.ConditionSpaceWeatherKnown, "True/"+v1alpha1.ReasonFresh)

	failing.Store(true)
	w.patchSite(`{"spec":{"spaceWeather":{"sources":[{"name":"kp","type":"PlanetaryKIndex","pollInterval":"11s","planetaryKIndex":{"url":"` + noaa.URL + `"}}]}}}`)
	eventually(t, "the error of the source", func() error {
		c := w.awaits("Site", "hub", v1alpha1.ConditionSpaceWeatherKnown, "Unknown/"+v1alpha1.ReasonNeverTold)
		if !strings.Contains(c.Message, "500") {
			return errors.New(c.Message)
		}
		return nil
	})
	pods(4)

	w.patchSite(`{"spec":{"surge":null}}`)
	pods(1)
}
