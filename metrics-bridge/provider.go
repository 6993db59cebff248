// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"
	metrics "sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"github.com/substorm/substorm/internal/metric"
)

// provider answers requests for external metrics with what operators export in the namespace that is asked for.
type provider struct {
	source  *source
	answers *prometheus.CounterVec
}

var _ metrics.ExternalMetricsProvider = (*provider)(nil)

func newProvider(from *source, registry prometheus.Registerer) *provider {
	return &provider{source: from, answers: metric.Counters(registry, "substorm_bridge_answers_total",
		"Requests for metrics by result: Answered; Unknown, where no operator exports such a value; Unreadable, where no operator answered.", "result")}
}

// GetExternalMetric implements provider.ExternalMetricsProvider.
func (p *provider) GetExternalMetric(_ context.Context, namespace string, selector labels.Selector, info metrics.ExternalMetricInfo) (*external_metrics.ExternalMetricValueList, error) {
	read, err := p.source.read()
	if err != nil {
		p.answers.WithLabelValues("Unreadable").Inc()
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no operator answers: %v: check that one runs, and that --operator-metrics is the URL of its metrics", err))
	}
	found := read.of(info.Metric, namespace, selector)
	if err := known(found, &read, info.Metric, namespace, selector); err != nil {
		p.answers.WithLabelValues("Unknown").Inc()
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: err.Error()}}
	}
	list := &external_metrics.ExternalMetricValueList{}
	for _, one := range found {
		list.Items = append(list.Items, external_metrics.ExternalMetricValue{
			MetricName: info.Metric, MetricLabels: one.labels, Timestamp: metav1.NewTime(read.at), Value: quantity(one.value)})
	}
	p.answers.WithLabelValues("Answered").Inc()
	return list, nil
}

// known says why what was found must not be scaled on; nil: it may be.
func known(found []sample, read *samples, name, namespace string, selector labels.Selector) error {
	what := fmt.Sprintf("%s in namespace %q", name, namespace)
	if !selector.Empty() {
		what += fmt.Sprintf(" with labels %s", selector)
	}
	for i, one := range found {
		switch {
		case math.IsNaN(one.value) || math.Abs(one.value) > maxValue:
			return fmt.Errorf("%s is %g, which is not a number to scale on", what, one.value)
		case i > 0 && one.labels.String() == found[i-1].labels.String():
			return fmt.Errorf("two operators export %s: give them different namespaces, or wait until the former leader has ended", what)
		}
	}
	if len(found) > 0 {
		return nil
	}
	text := fmt.Sprintf("no operator exports %s", what)
	switch {
	case read.failed != nil:
		return fmt.Errorf("%s, and some do not answer: %w", text, read.failed)
	case len(read.all[name]) > 0:
		return fmt.Errorf("%s: check the namespace, the labels and whether all ready pods report: while one does not, there is no value", text)
	}
	return fmt.Errorf("%s: docs/reference/metrics.md has the names; while the operator does not know a value, it exports none", text)
}

// maxValue is what thousandths of fit into an int64.
const maxValue = math.MaxInt64 / 1000

// quantity is a value in thousandths.
func quantity(value float64) resource.Quantity {
	return *resource.NewMilliQuantity(int64(math.Round(value*1000)), resource.DecimalSI)
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (p *provider) ListAllExternalMetrics() (all []metrics.ExternalMetricInfo) {
	read, err := p.source.read()
	if err != nil {
		return nil
	}
	for _, name := range read.names() {
		all = append(all, metrics.ExternalMetricInfo{Metric: name})
	}
	return all
}
