// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/operator/plan"
)

// leastBudget is what a Site takes that has received nothing, with some space to work in.
const leastBudget = 64 << 20

// AddDiskBudget adds the flag for the disk budget.
func AddDiskBudget(f *pflag.FlagSet, budget *string) {
	f.StringVar(budget, "disk-budget", "", "how large the data folder may become, such as 200Gi; empty: as large as its disk allows, less a reserve of a tenth, at most 1Gi")
}

// DiskBudget reads the flag, in bytes; 0 where it is empty.
func DiskBudget(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("--disk-budget %q: it must be a number of bytes with a unit, such as 200Gi", text)
	}
	if q.Value() < leastBudget {
		return 0, fmt.Errorf("--disk-budget %q: a Site needs at least 64Mi", text)
	}
	return q.Value(), nil
}

// startBudget keeps the disk budget, by which the programs give up what can be given up, and receive nothing when it is used up.
func (s *site) startBudget(parts *stack) error {
	declared, err := DiskBudget(s.cfg.DiskBudget)
	if err != nil {
		return err
	}
	s.budget, err = diskbudget.New(s.folder.path, declared, func(err error) { s.log.Warn("cannot determine the disk budget as it is now", "error", err) })
	if err != nil {
		return err
	}
	diskbudget.Embed(s.budget)
	parts.push(func() { diskbudget.Embed(nil) })
	parts.start("disk budget", func(ctx context.Context) error { s.budget.Run(ctx); return nil }, s.failed)
	return nil
}

// disk is what the Site's status says of the disk.
func (s *site) disk() plan.Disk {
	state, unwritten := s.budget.State(), ""
	if err := s.nats.Healthy(); err != nil {
		unwritten = err.Error()
	}
	return plan.Disk{
		Unwritten: unwritten,
		Measured:  state.Measured, Budget: state.Budget(), Used: state.Used, Objects: state.Objects, Streams: state.Streams, Reproducible: state.Reproducible,
		Removes: state.Remove > 0, Messages: state.Messages, NoReceipts: state.NoReceipts,
	}
}

// upPod names this program in metrics, as podLabel.
const upPod = "up"

// diskMetrics are those of the disk budget and of the clock that expiry goes by.
func (s *site) diskMetrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	flag := func(on bool) float64 {
		if on {
			return 1
		}
		return 0
	}
	metric.GaugeFunc(registry, "substorm_disk_budget_bytes", "What the data folder may have.", func() float64 { return float64(s.budget.State().Budget()) })
	metric.GaugeFunc(registry, "substorm_disk_used_bytes", "What the data folder has.", func() float64 { return float64(s.budget.State().Used) })
	metric.GaugeFunc(registry, "substorm_disk_objects_bytes", "What the archive had when the data folder was last measured.",
		func() float64 { return float64(s.budget.State().Objects) })
	metric.GaugeFunc(registry, "substorm_disk_streams_bytes", "What the streams had when the data folder was last measured.",
		func() float64 { return float64(s.budget.State().Streams) })
	metric.GaugeFunc(registry, "substorm_disk_reproducible_bytes", "Objects of the archive that can be made again.",
		func() float64 { return float64(s.budget.State().Reproducible) })
	metric.GaugeFunc(registry, "substorm_disk_receipts_refused", "1 while the disk budget is used up and nothing is received.",
		func() float64 { return flag(s.budget.NoReceipts()) })
	metric.GaugeFunc(registry, "substorm_disk_clock_ahead_seconds", "How far the clock is ahead of the time by which data expires.",
		func() float64 { now := time.Now(); return now.Sub(highwater.Limit(now)).Seconds() })
	return labeled(upPod, registry)
}
