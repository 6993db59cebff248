// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/spaceweather"
)

var (
	weatherLabels = []string{"namespace", "site", "quantity", "source"}
	weatherValue  = prometheus.NewDesc("substorm_space_weather_value",
		"Newest value of a quantity of space weather: Kp without a unit, Bz in nT, Speed in km/s. Absent while it is stale.", weatherLabels, nil)
	weatherAge = prometheus.NewDesc("substorm_space_weather_age_seconds",
		"How long ago the time ended of which the newest value tells.", weatherLabels, nil)
	weatherRequests = prometheus.NewDesc("substorm_space_weather_requests_total",
		"Times that a source of space weather was asked, by result: Answered; Unchanged; PutOff, where it said when to ask again; Failed.",
		[]string{"namespace", "site", "source", "result"}, nil)
	weatherRefused = prometheus.NewDesc("substorm_space_weather_refused_samples",
		"Samples of a source's last answer that were not taken: values that cannot be, times to come, records that cannot be read.",
		[]string{"namespace", "site", "source"}, nil)
	surgeLevel = prometheus.NewDesc("substorm_site_surge_level",
		"1 for the level of space weather that holds; absent while none does.", []string{"namespace", "site", "level"}, nil)
	surgeFloor = prometheus.NewDesc("substorm_site_surge_floor",
		"How many pods pools have at least, by space weather. A floor without a name is of each pool of its kind that has none of its own.",
		[]string{"namespace", "site", "kind", "name", "level"}, nil)
)

// Describe implements prometheus.Collector.
func (w *weathers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{weatherValue, weatherAge, weatherRequests, weatherRefused, surgeLevel, surgeFloor} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (w *weathers) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for key, of := range w.sites {
		var signals surge.Signals
		if of.set != nil {
			signals = of.set.Signals(now)
			collectRequests(ch, key, of.set.States())
		}
		for _, s := range signals {
			if newest, is := s.Newest(); is {
				age, _ := s.Age(now)
				if s.Fresh(now) {
					gauge(ch, weatherValue, newest.Value, key.Namespace, key.Name, string(s.Quantity), s.Source)
				}
				gauge(ch, weatherAge, age.Seconds(), key.Namespace, key.Name, string(s.Quantity), s.Source)
			}
		}
		if of.surge == nil {
			continue
		}
		if of.surge.Level != "" {
			gauge(ch, surgeLevel, 1, key.Namespace, key.Name, of.surge.Level)
		}
		for _, f := range of.surge.Floors {
			gauge(ch, surgeFloor, float64(f.Replicas), key.Namespace, key.Name, string(f.Kind), f.Name, f.Level)
		}
	}
}

// collectRequests sums up the requests of a source that is read in several documents.
func collectRequests(ch chan<- prometheus.Metric, site types.NamespacedName, states []spaceweather.State) {
	requests, refused := map[string]map[string]int{}, map[string]int{}
	for _, state := range states {
		refused[state.Source] += state.Refused.Samples
		if requests[state.Source] == nil {
			requests[state.Source] = map[string]int{}
		}
		for result, n := range state.Requests {
			requests[state.Source][result] += n
		}
	}
	for source, results := range requests {
		gauge(ch, weatherRefused, float64(refused[source]), site.Namespace, site.Name, source)
		for result, n := range results {
			ch <- prometheus.MustNewConstMetric(weatherRequests, prometheus.CounterValue, float64(n), site.Namespace, site.Name, source, result)
		}
	}
}
