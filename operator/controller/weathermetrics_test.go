// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/surge/spaceweather"
)

// weatherOf collects the metrics of states.
type weatherOf []spaceweather.State

func (s weatherOf) Describe(ch chan<- *prometheus.Desc) {
	ch <- weatherRequests
	ch <- weatherRefused
}

func (s weatherOf) Collect(ch chan<- prometheus.Metric) {
	collectRequests(ch, types.NamespacedName{Namespace: "aurora", Name: "kiruna"}, s)
}

// A source that is read in two documents is one in metrics.
func TestWeatherRequests(t *testing.T) {
	err := testutil.CollectAndCompare(weatherOf{
		{Source: "wind", Requests: map[string]int{"Answered": 3, "Failed": 0}, Refused: spaceweather.Refused{Samples: 1}},
		{Source: "wind", Requests: map[string]int{"Answered": 2, "Failed": 1}, Refused: spaceweather.Refused{Samples: 2}},
		{Source: "kp", Requests: map[string]int{"Failed": 0}},
	}, strings.NewReader(`# HELP substorm_space_weather_refused_samples Samples of a source's last answer that were not taken: values that cannot be, times to come, records that cannot be read.
# TYPE substorm_space_weather_refused_samples gauge
substorm_space_weather_refused_samples{namespace="aurora",site="kiruna",source="kp"} 0
substorm_space_weather_refused_samples{namespace="aurora",site="kiruna",source="wind"} 3
# HELP substorm_space_weather_requests_total Times that a source of space weather was asked, by result: Answered; Unchanged; PutOff, where it said when to ask again; Failed.
# TYPE substorm_space_weather_requests_total counter
substorm_space_weather_requests_total{namespace="aurora",result="Answered",site="kiruna",source="wind"} 5
substorm_space_weather_requests_total{namespace="aurora",result="Failed",site="kiruna",source="kp"} 0
substorm_space_weather_requests_total{namespace="aurora",result="Failed",site="kiruna",source="wind"} 1
`))
	if err != nil {
		t.Error(err)
	}
}
