// SPDX-License-Identifier: Apache-2.0

// Package load measures how full a pod is, each second, for its report and as metrics.
package load

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/cgroup"
	"github.com/substorm/substorm/internal/wire"
)

// Config says what is measured.
type Config struct {
	// Budgets that the pod has beside the CPU, by their names in wire: how full each is, 0 to 1.
	Budgets map[string]func() float64
	// Counts since the start; nil: nothing is counted. See wire.Load.
	Bytes, Packets, Answered, Refused, Limited func() uint64
	// Metrics get the gauge that Desc describes, with the label budget.
	Metrics prometheus.Registerer
	Desc    *prometheus.Desc
}

// Meter measures the load of this process. Its methods may be called from many goroutines.
type Meter struct {
	cfg Config
	// cpu is which part of the processors' time was used since the last call.
	cpu func(now time.Time) float64

	mu   sync.Mutex
	last counts
	fill map[string]float64
}

// counts are what was counted until then.
type counts struct {
	at                                         time.Time
	bytes, packets, answered, refused, limited uint64
}

// New returns a meter that has measured nothing yet.
func New(cfg Config) *Meter {
	m := &Meter{cfg: cfg, cpu: cgroup.NewCPU(time.Now()).Use}
	cfg.Metrics.MustRegister(m)
	return m
}

// Measure returns the load since the last call; nil at the first one. Call it every wire.LoadReportInterval.
func (m *Meter) Measure(now time.Time) *wire.Load {
	current := m.count(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.last
	m.last = current
	seconds := current.at.Sub(before.at).Seconds()
	if seconds <= 0 {
		return nil
	}
	cpu := m.cpu(now)
	if before.at.IsZero() {
		return nil
	}
	fill := map[string]float64{wire.BudgetCPU: share(cpu)}
	for budget, full := range m.cfg.Budgets {
		fill[budget] = share(full())
	}
	m.fill = fill
	return &wire.Load{
		Fill:           fill,
		BytesPerSecond: int64(float64(current.bytes-before.bytes) / seconds), PacketsPerSecond: int64(float64(current.packets-before.packets) / seconds),
		Answered: int64(current.answered - before.answered), Refused: int64(current.refused - before.refused), Limited: int64(current.limited - before.limited),
	}
}

func (m *Meter) count(now time.Time) counts {
	number := func(f func() uint64) uint64 {
		if f == nil {
			return 0
		}
		return f()
	}
	c := &m.cfg
	return counts{now, number(c.Bytes), number(c.Packets), number(c.Answered), number(c.Refused), number(c.Limited)}
}

// share is a part of a whole, in thousandths.
func share(v float64) float64 {
	if math.IsNaN(v) || v < 0 {
		return 0
	}
	return math.Round(1000*min(v, 1)) / 1000
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) { ch <- m.cfg.Desc }

// Collect implements prometheus.Collector.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for budget, v := range m.fill {
		ch <- prometheus.MustNewConstMetric(m.cfg.Desc, prometheus.GaugeValue, v, budget)
	}
}

// Fill is the used share of a whole; a whole of 0 is unbounded.
func Fill[N int | int64](used, of N) float64 {
	if of <= 0 {
		return 0
	}
	return float64(used) / float64(of)
}
