// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

var (
	poolConnections = prometheus.NewDesc("substorm_pool_connections",
		"Live connections of consumers that are open at the pods of a FeedServer; absent while a ready pod does not report.", poolLabels, nil)
	poolEventStreams = prometheus.NewDesc("substorm_pool_event_streams",
		"Event streams of the archive that are open at the pods of a FeedServer; absent while a ready pod does not report.", poolLabels, nil)
	poolBytes = prometheus.NewDesc("substorm_pool_bytes_per_second",
		"Bytes a second that the pods of a FeedServer sent to consumers and readers, on the average of the last minute; absent while a ready pod does not report.", poolLabels, nil)
	poolSpoolBytes = prometheus.NewDesc("substorm_pool_spool_bytes",
		"Bytes of objects that wait in the spools of the pods of an IngestGateway; absent while a ready pod does not report.", poolLabels, nil)
)

// poolMetrics sum up the reports of a pool's pods. An autoscaler may use them (docs/how-to/hpa.md): a sum that lacks a pod would ask for
// too few, so there is none then.
type poolMetrics struct {
	client client.Client // the cache
	links  *links
}

// Describe implements prometheus.Collector.
func (m *poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolEventStreams, poolBytes, poolSpoolBytes} {
		ch <- d
	}
}

// collectTimeout bounds reads of the cache, which wait while it is not filled.
const collectTimeout = time.Second

// Collect implements prometheus.Collector. Pools that cannot be read have no figures.
func (m *poolMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	for _, site := range m.links.keys() {
		f := m.links.facts(site)
		servers, err := serversOf(ctx, m.client, site)
		if err != nil {
			return
		}
		for i := range servers {
			m.server(ctx, ch, f, site, &servers[i])
		}
		var gateways v1alpha1.IngestGatewayList
		if err := m.client.List(ctx, &gateways, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return
		}
		for i := range gateways.Items {
			m.gateway(ctx, ch, f, site, &gateways.Items[i])
		}
	}
}

func (m *poolMetrics) server(ctx context.Context, ch chan<- prometheus.Metric, f *facts, site types.NamespacedName, server *v1alpha1.FeedServer) {
	now, reported := m.links.now(), map[string]bool{}
	var connections, streams, bytes float64
	for _, r := range f.reports.ofFeedServers() {
		if r.FeedServer == server.Name && now.Sub(r.Seen) <= aliveFor {
			reported[r.Pod] = true
			connections += float64(r.Connections)
			streams += float64(r.EventStreams)
			bytes += float64(r.BytesPerSecond)
		}
	}
	if !m.complete(ctx, server.Namespace, workload.FeedServerOf(nil, server).Selector(), reported) {
		return
	}
	labels := []string{site.Namespace, site.Name, kindFeedServer, server.Name}
	gauge(ch, poolConnections, connections, labels...)
	gauge(ch, poolEventStreams, streams, labels...)
	gauge(ch, poolBytes, bytes, labels...)
}

func (m *poolMetrics) gateway(ctx context.Context, ch chan<- prometheus.Metric, f *facts, site types.NamespacedName, pool *v1alpha1.IngestGateway) {
	now, reported, bytes := m.links.now(), map[string]bool{}, 0.
	for _, r := range f.reports.ofPool(pool.Name) {
		if now.Sub(r.Seen) <= aliveFor {
			reported[r.Gateway] = true
			if r.Spool != nil {
				bytes += float64(r.Spool.Bytes)
			}
		}
	}
	if m.complete(ctx, pool.Namespace, workload.PodLabels(pool.Name), reported) {
		gauge(ch, poolSpoolBytes, bytes, site.Namespace, site.Name, kindIngestGateway, pool.Name)
	}
}

// complete says whether there are ready pods, and all of them reported.
func (m *poolMetrics) complete(ctx context.Context, namespace string, selector map[string]string, reported map[string]bool) bool {
	var pods corev1.PodList
	if err := m.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(selector), client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	ready := 0
	for i := range pods.Items {
		if !workload.PodReady(&pods.Items[i]) {
			continue
		}
		if !reported[pods.Items[i].Name] {
			return false
		}
		ready++
	}
	return ready > 0
}
