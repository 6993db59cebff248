// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/labels"
	metrics "sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
)

const exported = `# TYPE substorm_pool_connections gauge
substorm_pool_connections{kind="FeedServer",pool="demo",namespace="substorm",site="demo"} 7
substorm_pool_connections{kind="FeedServer",pool="public",namespace="substorm",site="demo"} 2.5
substorm_pool_connections{kind="FeedServer",pool="demo",namespace="north",site="north"} 100
# TYPE substorm_pool_bytes_per_second gauge
substorm_pool_bytes_per_second{kind="FeedServer",pool="demo",namespace="substorm",site="demo"} NaN
substorm_pool_bytes_per_second{kind="FeedServer",pool="public",namespace="substorm",site="demo"} 1e300
# TYPE substorm_space_weather_value gauge
substorm_space_weather_value{namespace="substorm",quantity="Bz",site="demo",source="wind"} -11.25
# TYPE substorm_operator_known_sites gauge
substorm_operator_known_sites 3
# TYPE substorm_space_weather_requests_total counter
substorm_space_weather_requests_total{namespace="substorm",site="demo",source="wind",result="Failed"} 12
# TYPE go_goroutines gauge
go_goroutines{namespace="substorm"} 5
`

// TestProvider: the answers for what an operator says. The rest is an error, and not scaled on.
func TestProvider(t *testing.T) {
	for name, c := range map[string]struct {
		says             string // of the operator; empty: exported
		metric, selector string
		want             map[string]string // by the name of the pool or the quantity
		err              string
	}{
		"one pool":                   {metric: "substorm_pool_connections", selector: "kind=FeedServer,pool=demo", want: map[string]string{"demo": "7"}},
		"all pools of the namespace": {metric: "substorm_pool_connections", selector: "kind=FeedServer", want: map[string]string{"demo": "7", "public": "2500m"}},
		"below 0":                    {metric: "substorm_space_weather_value", selector: "quantity=Bz", want: map[string]string{"Bz": "-11250m"}},
		"another pool":               {metric: "substorm_pool_connections", selector: "pool=other", err: "whether all ready pods report"},
		"no such metric":             {metric: "substorm_pool_widgets", err: "docs/reference/metrics.md has the names"},
		"a counter":                  {metric: "substorm_space_weather_requests_total", err: "no operator exports"},
		"without a namespace":        {metric: "substorm_operator_known_sites", err: "no operator exports"},
		"of somebody else":           {metric: "go_goroutines", err: "no operator exports"},
		"no number":                  {metric: "substorm_pool_bytes_per_second", selector: "pool=demo", err: "NaN, which is not a number"},
		"beyond all numbers":         {metric: "substorm_pool_bytes_per_second", selector: "pool=public", err: "1e+300, which is not a number"},
		"an operator that answers nonsense": {says: "substorm_pool_connections{kind=", metric: "substorm_pool_connections", selector: "pool=demo",
			err: "no operator answers"},
		"an operator that says too much": {says: exported + strings.Repeat("# "+strings.Repeat("x", 1021)+"\n", maxAnswer>>10), metric: "substorm_pool_connections",
			selector: "pool=demo", err: "more than 16777216 bytes"},
		"an operator that says something twice": {says: exported + `substorm_pool_connections{kind="FeedServer",pool="demo",namespace="substorm",site="demo"} 9` + "\n",
			metric: "substorm_pool_connections", selector: "pool=demo", err: "two operators export"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.says == "" {
				c.says = exported
			}
			p, _ := bridgeOf(t, answering(c.says))
			got, err := ask(t, p, c.metric, c.selector)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestOperators: of several, each says of its own namespaces; two that say the same are an error, and one that fails is named.
func TestOperators(t *testing.T) {
	only := func(line string) http.Handler {
		return answering("# TYPE substorm_pool_connections gauge\n" + line + "\n")
	}
	north := only(`substorm_pool_connections{pool="demo",namespace="north"} 1`)
	south := only(`substorm_pool_connections{pool="demo",namespace="substorm"} 2`)
	failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte("# " + strings.Repeat("x", 1<<20) + "\n")); err != nil {
				return
			}
		}
	})
	for name, c := range map[string]struct {
		operators []http.Handler
		want      map[string]string
		err       string
	}{
		"two":                  {[]http.Handler{north, south}, map[string]string{"demo": "2"}, ""},
		"two of a namespace":   {[]http.Handler{south, south}, nil, "two operators export"},
		"one of two fails":     {[]http.Handler{south, failing}, map[string]string{"demo": "2"}, ""},
		"the one of two fails": {[]http.Handler{north, failing}, nil, "some do not answer"},
		"all fail":             {[]http.Handler{failing, failing}, nil, "500 Internal Server Error"},
		"one never ends":       {[]http.Handler{endless}, nil, "no operator answers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, registry := bridgeOf(t, c.operators...)
			got, err := ask(t, p, "substorm_pool_connections", "pool=demo")
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if n, err := testutil.GatherAndCount(registry, "substorm_bridge_answers_total"); n != 1 || err != nil {
				t.Errorf("%d answers are counted: %v", n, err)
			}
		})
	}
}

// TestOperatorGone: what an operator said is not answered once it is gone.
func TestOperatorGone(t *testing.T) {
	operator := httptest.NewServer(answering(exported))
	from, err := newSource([]string{operator.URL + "/metrics"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(from, nil)
	if _, err := ask(t, p, "substorm_pool_connections", "pool=demo"); err != nil {
		t.Fatal(err)
	}
	operator.Close()
	time.Sleep(freshFor) // for as long the last answer counts
	if got, err := ask(t, p, "substorm_pool_connections", "pool=demo"); err == nil {
		t.Errorf("got %v of an operator that is gone", got)
	}
}

func TestOperatorURLs(t *testing.T) {
	for _, bad := range []string{"", "operator:8080", "https://operator:8080/metrics", "http:///metrics", "http://%/"} {
		if _, err := newSource([]string{bad}, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func answering(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
}

// bridgeOf is a provider that reads operators.
func bridgeOf(t *testing.T, operators ...http.Handler) (*provider, *prometheus.Registry) {
	t.Helper()
	var urls []string
	for _, o := range operators {
		server := httptest.NewServer(o)
		t.Cleanup(server.Close)
		urls = append(urls, server.URL+"/metrics")
	}
	registry := prometheus.NewRegistry()
	from, err := newSource(urls, registry)
	if err != nil {
		t.Fatal(err)
	}
	return newProvider(from, registry), registry
}

// ask returns the values of a metric, by pool or quantity.
func ask(t *testing.T, p *provider, metric, selector string) (map[string]string, error) {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.GetExternalMetric(t.Context(), "substorm", parsed, metrics.ExternalMetricInfo{Metric: metric})
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, item := range list.Items {
		if item.MetricName != metric || time.Since(item.Timestamp.Time) > time.Minute {
			t.Errorf("%+v", item)
		}
		values[item.MetricLabels["pool"]+item.MetricLabels["quantity"]] = item.Value.String()
	}
	return values, nil
}
