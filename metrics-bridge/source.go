// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/substorm/substorm/internal/metric"
)

const (
	// freshFor is how long an answer of operators is used. A HorizontalPodAutoscaler asks for all of its metrics at once.
	freshFor = time.Second
	// patience is how long operators may take to answer.
	patience = 3 * time.Second
	// maxAnswer bounds an operator's answer, which takes eight times its size of memory. One with 10,000 Instruments exports about 4 MB.
	maxAnswer = 16 << 20

	prefix         = "substorm_"
	namespaceLabel = "namespace"
)

// sample is a value that an operator exports.
type sample struct {
	labels labels.Set
	value  float64
}

// samples are what operators export, by metric.
type samples struct {
	at  time.Time
	all map[string][]sample
	// failed says which operators did not answer, while others did; nil: none.
	failed error
}

// source reads the metrics of operators.
type source struct {
	operators []*url.URL
	client    *http.Client
	reads     *prometheus.CounterVec

	mu   sync.Mutex
	last samples
	err  error
	at   time.Time // of last or err
}

func newSource(operators []string, registry prometheus.Registerer) (*source, error) {
	s := &source{
		// Each read makes a new connection: pods of operators come and go, and their addresses with them.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		reads:  metric.Counters(registry, "substorm_bridge_reads_total", "Times that the metrics of an operator were read, by result: Read, Failed.", "result"),
	}
	for _, operator := range operators {
		u, err := url.Parse(operator)
		if err != nil || u.Scheme != "http" || u.Hostname() == "" {
			return nil, fmt.Errorf("--operator-metrics %q is not a URL such as http://substorm-operator-metrics.substorm.svc:8080/metrics", operator)
		}
		s.operators = append(s.operators, u)
	}
	return s, nil
}

// read returns what operators export now. Its error says that none answered.
func (s *source) read() (samples, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= freshFor {
		// Not the context of the request: others wait for the same answer.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.last, s.err = s.readAll(ctx)
		s.at = time.Now()
	}
	return s.last, s.err
}

// readAll asks each operator at each of its addresses: of several only the one that leads exports pools.
func (s *source) readAll(ctx context.Context) (samples, error) {
	var (
		mu     sync.Mutex
		failed []error
		found  = samples{at: time.Now(), all: map[string][]sample{}}
		read   int
		all    sync.WaitGroup
	)
	for _, operator := range s.operators {
		addresses, err := net.DefaultResolver.LookupHost(ctx, operator.Hostname())
		if err != nil {
			s.reads.WithLabelValues("Failed").Inc()
			mu.Lock() // those of another operator may be asked meanwhile
			failed = append(failed, err)
			mu.Unlock()
		}
		for _, address := range addresses {
			all.Go(func() {
				families, err := s.ask(ctx, operator, address)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					s.reads.WithLabelValues("Failed").Inc()
					failed = append(failed, err)
					return
				}
				s.reads.WithLabelValues("Read").Inc()
				read++
				found.take(families)
			})
		}
	}
	all.Wait()
	found.failed = errors.Join(failed...)
	if read == 0 {
		return samples{}, found.failed
	}
	return found, nil
}

// ask reads the metrics of the operator at one of its addresses.
func (s *source) ask(ctx context.Context, operator *url.URL, address string) (map[string]*dto.MetricFamily, error) {
	at := *operator
	at.Host = address
	if strings.Contains(address, ":") {
		at.Host = "[" + address + "]"
	}
	if port := operator.Port(); port != "" {
		at.Host = net.JoinHostPort(address, port)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Host = operator.Host
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", at.String(), response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	// One byte more than may be is read, so that an answer that is cut off is no whole one.
	body := &io.LimitedReader{R: response.Body, N: maxAnswer + 1}
	families, err := parser.TextToMetricFamilies(body)
	if body.N == 0 {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.String(), err)
	}
	return families, nil
}

// take adds the gauges of ours that belong to a namespace. Counters only ever grow: no pods follow from them.
func (s *samples) take(families map[string]*dto.MetricFamily) {
	for name, family := range families {
		if !strings.HasPrefix(name, prefix) || family.GetType() != dto.MetricType_GAUGE {
			continue
		}
		for _, m := range family.GetMetric() {
			one := sample{labels: labels.Set{}, value: m.GetGauge().GetValue()}
			for _, pair := range m.GetLabel() {
				one.labels[pair.GetName()] = pair.GetValue()
			}
			if one.labels[namespaceLabel] != "" {
				s.all[name] = append(s.all[name], one)
			}
		}
	}
}

// of returns the values of a metric in a namespace that a selector selects, in the order of their labels.
func (s *samples) of(name, namespace string, selector labels.Selector) []sample {
	var found []sample
	for _, one := range s.all[name] {
		if one.labels[namespaceLabel] == namespace && selector.Matches(one.labels) {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b sample) int { return strings.Compare(a.labels.String(), b.labels.String()) })
	return found
}

// names are those of the metrics, in order.
func (s *samples) names() []string { return slices.Sorted(maps.Keys(s.all)) }
