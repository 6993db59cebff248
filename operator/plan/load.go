// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/observing"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// GatewayLoads are the loads that the pods of an IngestGateway report.
func GatewayLoads(reports []observed.GatewayReport) (all []autoscale.Report) {
	for i := range reports {
		if r := &reports[i]; r.Load != nil {
			all = append(all, loadReport(r.Gateway, r.Seen, r.Load))
		}
	}
	return all
}

// FeedServerLoads are the loads that the pods of a FeedServer report.
func FeedServerLoads(server string, reports []observed.FeedServerReport) (all []autoscale.Report) {
	for i := range reports {
		if r := &reports[i]; r.Load != nil && r.FeedServer == server {
			all = append(all, loadReport(r.Pod, r.Seen, r.Load))
		}
	}
	return all
}

// loadReport has the time of the operator's own clock: a pod's clock may be wrong. Budgets are taken only if the pod's keys for them are names.
func loadReport(pod string, seen time.Time, load *wire.Load) autoscale.Report {
	fill := map[autoscale.Budget]float64{}
	for budget, v := range load.Fill {
		if wire.IsBudget(budget) {
			fill[autoscale.Budget(budget)] = v
		}
	}
	return autoscale.Report{Pod: pod, At: seen, Fill: fill, BytesPerSecond: float64(load.BytesPerSecond), Answered: load.Answered, Refused: load.Refused}
}

// LoopConfig is how the operator's own loop behaves for a pool.
func LoopConfig(defaults autoscale.Config, spec *v1alpha1.Autoscaling) autoscale.Config {
	cfg := defaults
	if percent := spec.Operator.TargetUtilizationPercentage; percent > 0 {
		cfg.TargetUtilization = float64(percent) / 100
		// Pods that are as full as they are to be make no panic.
		cfg.PanicUtilization = max(cfg.PanicUtilization, (1+cfg.TargetUtilization)/2)
	}
	cfg.ScaleDownDelay = durationOf(spec.Operator.ScaleDownDelay, cfg.ScaleDownDelay)
	return cfg
}

// LoadUnknown returns why the load of a pool that was last heard of at a time is not known; empty: it is. A restart of pods takes a while.
func LoadUnknown(heard, now time.Time) string {
	if now.Sub(heard) <= observing.Silence {
		return ""
	}
	return fmt.Sprintf("no pod has reported its load since %s", stamp(heard))
}
