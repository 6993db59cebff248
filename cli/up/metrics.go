// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/substorm/substorm/cli/up/pods"
	"github.com/substorm/substorm/internal/telemetry"
)

// podLabel names the program that a series is of, as a scrape of a cluster's pods would. The operator has no pod here.
const (
	podLabel    = "pod"
	operatorPod = "operator"
	// scrapeTimeout is how long a program may take to answer: it is in this process.
	scrapeTimeout = 5 * time.Second
)

// startMetrics serves the metrics of the operator and of all pods as one page.
func (s *site) startMetrics(parts *stack) error {
	if s.cfg.ListenMetrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.cfg.ListenMetrics)
	if err != nil {
		return fmt.Errorf("--listen-metrics: %w: choose another address, or none by an empty one", err)
	}
	s.own = s.diskMetrics()
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.GathererFunc(s.gather), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	server := &http.Server{Handler: telemetry.CheckLoopbackHost(mux), ReadHeaderTimeout: scrapeTimeout}
	parts.start("metrics", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		return server.Serve(l)
	}, s.failed)
	return nil
}

// gather collects what all of the process count. A program that does not answer is an error beside what the others say.
func (s *site) gather() ([]*dto.MetricFamily, error) {
	of := prometheus.Gatherers{labeled(operatorPod, metrics.Registry), s.own}
	for pod, address := range s.pods.Health() {
		of = append(of, labeled(pod.Name, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return scrape(address) })))
	}
	return of.Gather()
}

// labeled says of each series which program it is of.
func labeled(pod string, g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		if err != nil {
			err = fmt.Errorf("%s: %w", pod, err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				m.Label = append(m.Label, &dto.LabelPair{Name: new(podLabel), Value: &pod})
				slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			}
		}
		return families, err
	})
}

// scrape reads what a program serves at its address.
func scrape(address string) ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	body, err := pods.Ask(ctx, address, "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	return slices.Collect(maps.Values(families)), err
}
