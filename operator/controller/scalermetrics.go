// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	poolLabels = []string{"namespace", "site", "kind", "pool"}
	poolLoad   = prometheus.NewDesc("substorm_pool_load_pods",
		"Load of the pods of an IngestGateway or a FeedServer, in full pods: 3 is what three of them carry; absent while no pod reports.", poolLabels, nil)
	poolUnreported = prometheus.NewDesc("substorm_pool_unreported_pods",
		"Ready pods that do not report their load: those that had reported count as the average of the others.", poolLabels, nil)
	poolPanic = prometheus.NewDesc("substorm_pool_panic",
		"1 while the load of the last seconds decides how many pods are asked for, else 0; of pools with driver Operator.", poolLabels, nil)
	poolReplicas = prometheus.NewDesc("substorm_pool_replicas",
		"How many pods a pool is to have.", poolLabels, nil)
	poolAsked = prometheus.NewDesc("substorm_pool_asked_replicas",
		"How many pods are asked for: spec.replicas.", poolLabels, nil)
	poolFloor = prometheus.NewDesc("substorm_pool_floor_replicas",
		"How many pods there are at least: minReplicas, or the floor of a level of space weather.", poolLabels, nil)
	poolCeiling = prometheus.NewDesc("substorm_pool_ceiling_replicas",
		"How many pods there may be: maxReplicas, or what the cluster can give.", poolLabels, nil)
	poolHeld = prometheus.NewDesc("substorm_pool_held_replicas",
		"How many pods have to stay because of what is in their spools, or because the cluster has space for fewer and takes none away; 0: none has to.", poolLabels, nil)
)

// Describe implements prometheus.Collector.
func (s *scalers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolLoad, poolUnreported, poolPanic, poolReplicas, poolAsked, poolFloor, poolCeiling, poolHeld} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A pool whose Site is gone has no figures.
func (s *scalers) Collect(ch chan<- prometheus.Metric) {
	sites := s.links.keys()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for r, of := range s.pools {
		if !slices.Contains(sites, of.site) {
			continue
		}
		labels := []string{r.Namespace, of.site.Name, r.kind, r.Name}
		if now.Sub(of.heard) <= aliveFor {
			gauge(ch, poolLoad, of.load.Total, labels...)
			gauge(ch, poolUnreported, float64(of.load.Missing), labels...)
		}
		if of.loop != nil {
			gauge(ch, poolPanic, truth(of.asked.Panic), labels...)
		}
		if scale := of.scale; scale != nil {
			gauge(ch, poolReplicas, float64(scale.Replicas().Replicas), labels...)
			gauge(ch, poolAsked, float64(scale.Asked.Replicas), labels...)
			gauge(ch, poolFloor, float64(scale.Floor.Replicas), labels...)
			gauge(ch, poolCeiling, float64(scale.Ceiling.Replicas), labels...)
			gauge(ch, poolHeld, float64(scale.Held.Replicas), labels...)
		}
	}
}
