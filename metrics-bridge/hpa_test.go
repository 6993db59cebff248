// SPDX-License-Identifier: Apache-2.0

package metricsbridge_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// TestHPA: Kubernetes' own HorizontalPodAutoscaler raises spec.replicas of a FeedServer through /scale as its connections grow, by what
// the operator exports and the bridge serves with the rights that the chart gives it, and the workload follows. While the bridge is
// away it lowers nothing, though the load is gone.
func TestHPA(t *testing.T) {
	l := newLab(t)
	account := l.installBridge()
	stop := l.startBridge(account)
	l.awaitReplicas(1)
	eventually(t, "a metric of the feed servers", func() error {
		_, err := l.read("substorm_pool_connections", "kind=FeedServer,pool=demo")
		return err
	})
	if _, err := l.read("substorm_pool_connections", "kind=FeedServer,pool=other"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a FeedServer that does not exist: %v", err)
	}

	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	sample(t, "hpa-feed-server.yaml", hpa)
	hpa.Spec.MinReplicas = new(int32(1))
	two, now := resource.MustParse("2"), int32(0)
	for i := range hpa.Spec.Metrics {
		if m := hpa.Spec.Metrics[i].External; m.Metric.Name == "substorm_pool_connections" {
			m.Target.AverageValue = &two
		}
	}
	// The test waits for no window.
	hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &now}}
	l.create(hpa)
	l.awaitMetrics(hpa)
	leave := l.view(5)
	l.awaitReplicas(3)

	stop()
	l.awaitFailing()
	leave()
	l.awaitConnections("0")
	l.looksAgain(hpa)
	if asked, deployed, pods, err := l.replicas(); err != nil || asked != 3 || deployed != 3 || pods != 3 {
		t.Errorf("without a bridge %d feed servers are asked for, the Deployment has %d, and there are %d: %v", asked, deployed, pods, err)
	}

	// Another bridge has another certificate.
	l.startBridge(account)
	l.awaitReplicas(1)
}

// awaitConnections waits until the operator knows how many connections the feed servers have.
func (l *lab) awaitConnections(want string) {
	l.t.Helper()
	eventually(l.t, want+" connections", func() error {
		response, err := http.Get(l.operator)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		line := `substorm_pool_connections{kind="FeedServer",namespace="` + namespace + `",pool="demo",site="demo"} `
		_, is, _ := strings.Cut(string(body), line)
		if is, _, _ = strings.Cut(is, "\n"); is != want {
			return fmt.Errorf("there are %q", is)
		}
		return nil
	})
}

// awaitMetrics waits until the HorizontalPodAutoscaler has a value of each of its metrics: that one of several has is enough for its condition.
func (l *lab) awaitMetrics(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	l.t.Helper()
	eventually(l.t, "the HorizontalPodAutoscaler reads its metrics", func() error {
		is := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := l.Get(l.t.Context(), client.ObjectKeyFromObject(hpa), is); err != nil {
			return err
		}
		for _, m := range hpa.Spec.Metrics {
			if !slices.ContainsFunc(is.Status.CurrentMetrics, func(has autoscalingv2.MetricStatus) bool {
				return has.External != nil && has.External.Metric.Name == m.External.Metric.Name && has.External.Current.AverageValue != nil
			}) {
				return fmt.Errorf("it has no value of %s; %s", m.External.Metric.Name, l.active())
			}
		}
		if is := l.active(); !strings.HasPrefix(is, "True/ValidMetricFound") {
			return errors.New(is)
		}
		return nil
	})
}

// awaitFailing waits until the HorizontalPodAutoscaler finds no metrics.
func (l *lab) awaitFailing() {
	l.t.Helper()
	eventually(l.t, "the HorizontalPodAutoscaler finds no metrics", func() error {
		if is := l.active(); !strings.HasPrefix(is, "False/FailedGetExternalMetric") {
			return errors.New(is)
		}
		return nil
	})
}

// looksAgain recreates the HorizontalPodAutoscaler, and waits until it has looked, in vain.
func (l *lab) looksAgain(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	l.t.Helper()
	if err := l.Delete(l.t.Context(), hpa); err != nil {
		l.t.Fatal(err)
	}
	hpa.ObjectMeta = metav1.ObjectMeta{Name: hpa.Name, Namespace: hpa.Namespace}
	hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	l.create(hpa)
	l.awaitFailing()
}
