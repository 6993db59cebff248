// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/operator/surge"
)

var (
	weatherLabels = []string{"namespace", "site", "quantity", "source"}
	weatherValue  = prometheus.NewDesc("substorm_space_weather_value",
		"Newest value of a quantity of space weather: Kp without a unit, Bz in nT, Speed in km/s.", weatherLabels, nil)
	weatherAge = prometheus.NewDesc("substorm_space_weather_age_seconds",
		"How long ago the time ended of which the newest value tells.", weatherLabels, nil)
	surgeLevel = prometheus.NewDesc("substorm_site_surge_level",
		"1 for the level of space weather that holds; absent while none does.", []string{"namespace", "site", "level"}, nil)
	surgeFloor = prometheus.NewDesc("substorm_site_surge_floor",
		"How many pods pools have at least, by space weather. A floor without a name is of each pool of its kind that has none of its own.",
		[]string{"namespace", "site", "kind", "name", "level"}, nil)
)

// Describe implements prometheus.Collector.
func (w *weathers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{weatherValue, weatherAge, surgeLevel, surgeFloor} {
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
		}
		for _, s := range signals {
			if newest, is := s.Newest(); is {
				age, _ := s.Age(now)
				gauge(ch, weatherValue, newest.Value, key.Namespace, key.Name, string(s.Quantity), s.Source)
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
