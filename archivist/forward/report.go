// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// Metrics outlive the forwarders of one process.
type Metrics struct {
	items, bytes  *prometheus.CounterVec
	dropped       *prometheus.CounterVec
	failures      *prometheus.CounterVec
	backlog       *prometheus.GaugeVec
	backlogBytes  *prometheus.GaugeVec
	oldestWaiting *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return metric.Counters(registry, name, help, "instrument")
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return metric.Gauges(registry, name, help, "instrument")
	}
	return &Metrics{
		items:    counter("substorm_forward_items_total", "Objects or datagrams sent to the server of spec.forward by this archivist."),
		bytes:    counter("substorm_forward_bytes_total", "Bytes of them."),
		dropped:  counter("substorm_forward_dropped_total", "Objects or datagrams that will never be sent: the stream was trimmed of them, or their bytes are gone."),
		failures: counter("substorm_forward_failures_total", "Tries that failed; what they were about is tried again."),
		backlog:  gauge("substorm_forward_backlog_items", "Objects or datagrams that wait to be sent to the server of spec.forward."),
		backlogBytes: gauge("substorm_forward_backlog_bytes",
			"Bytes of the objects or datagrams that wait."),
		oldestWaiting: gauge("substorm_forward_oldest_timestamp_seconds", "When the oldest of them was received; 0 where nothing waits."),
	}
}

func (m *Metrics) sent(instrument string, w wire.ForwardTotals) {
	m.items.WithLabelValues(instrument).Add(float64(w.Items))
	m.bytes.WithLabelValues(instrument).Add(float64(w.Bytes))
}

func (m *Metrics) droppedItems(instrument string, items uint64) {
	m.dropped.WithLabelValues(instrument).Add(float64(items))
}

func (m *Metrics) failed(instrument string) { m.failures.WithLabelValues(instrument).Inc() }

// forget removes the gauges of an instrument that this archivist no longer copies.
func (m *Metrics) forget(instrument string) {
	for _, g := range []*prometheus.GaugeVec{m.backlog, m.backlogBytes, m.oldestWaiting} {
		g.DeleteLabelValues(instrument)
	}
}

// reportTimeout bounds a report.
const reportTimeout = 2 * time.Second

// report reports the copy's progress to the Site if it changed.
func (c *copier) report(ctx context.Context) {
	tick := time.NewTicker(wire.GatewayReportInterval)
	defer tick.Stop()
	var said wire.ForwardStatus
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		status := c.status()
		c.cfg.Metrics.backlog.WithLabelValues(c.instrument).Set(float64(status.Backlog.Items))
		c.cfg.Metrics.backlogBytes.WithLabelValues(c.instrument).Set(float64(status.Backlog.Bytes))
		oldest := 0.0
		if status.Oldest != nil {
			oldest = float64(status.Oldest.UnixMilli()) / 1000
		}
		c.cfg.Metrics.oldestWaiting.WithLabelValues(c.instrument).Set(oldest)
		if reflect.DeepEqual(said, status) || c.cfg.Lease.Check() != nil {
			continue
		}
		if err := c.put(ctx, status); err == nil {
			said = status
		}
	}
}

func (c *copier) status() wire.ForwardStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := wire.ForwardStatus{Gateway: c.cfg.Pod, Address: c.entry.Address,
		Sent: c.cursor.Sent, Dropped: c.cursor.Dropped, Backlog: backlog(c.cursor), LastError: c.lastError}
	if oldest := c.window.oldest().UTC(); !oldest.IsZero() && s.Backlog.Items > 0 {
		s.Oldest = &oldest
	}
	return s
}

func (c *copier) put(ctx context.Context, s wire.ForwardStatus) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	s.ReportedAt = time.Now().UTC()
	value, err := wire.Encode(s)
	if err != nil {
		return err
	}
	_, err = c.reports.Put(ctx, wire.ForwardStatusKey(c.instrument), value)
	return err
}
