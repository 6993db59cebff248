// SPDX-License-Identifier: Apache-2.0

// Package telemetry is how a program speaks about itself: JSON logs, Prometheus metrics, and the HTTP server with
// /healthz, /readyz and /metrics.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/substorm/substorm/internal/build"
)

// NewLogger writes JSON lines to w from level on: debug, info, warn or error.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("invalid log level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// NewRegistry returns a registry with the metrics of the Go runtime and the process, and
// substorm_build_info{program, version, goversion} 1.
func NewRegistry(program string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(program),
	)
	return reg
}

func buildInfo(program string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "substorm_build_info", Help: "What this program was built from; always 1.",
		ConstLabels: prometheus.Labels{
			"program": program, "version": build.Version(), "goversion": runtime.Version(),
		},
	}, func() float64 { return 1 })
}
