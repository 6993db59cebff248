// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
)

func gauge(reg prometheus.Registerer, name, help string, value func() float64) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// registerMemory shows pools as one.
func registerMemory(reg prometheus.Registerer, pools ...*memory.Pool) {
	stat := func(get func(memory.Stats) int64) func() float64 {
		return func() float64 {
			sum := int64(0)
			for _, p := range pools {
				sum += get(p.Stats())
			}
			return float64(sum)
		}
	}
	gauge(reg, "substorm_gateway_memory_budget_bytes", "Bytes of memory that received objects may take.",
		stat(func(s memory.Stats) int64 { return s.Budget }))
	gauge(reg, "substorm_gateway_memory_used_bytes", "Bytes of memory that received objects take.",
		stat(func(s memory.Stats) int64 { return s.MemoryUsed }))
	gauge(reg, "substorm_gateway_memory_waiting", "Objects that wait for memory: nothing is read of them.",
		stat(func(s memory.Stats) int64 { return s.Waiting }))
	gauge(reg, "substorm_gateway_scratch_size_bytes", "Bytes on the volume that received objects may take.",
		stat(func(s memory.Stats) int64 { return s.ScratchSize }))
	gauge(reg, "substorm_gateway_scratch_used_bytes", "Bytes on the volume that received objects take.",
		stat(func(s memory.Stats) int64 { return s.ScratchUsed }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "substorm_gateway_scratch_spills_total",
		Help: "Objects, or parts of them, that went to the volume because memory was short.",
	}, stat(func(s memory.Stats) int64 { return s.Spills })))
}

func registerRegistry(reg prometheus.Registerer, registry *intake.Registry) {
	gauge(reg, "substorm_gateway_registry_revision", "Revision of the registry that this pod runs.",
		func() float64 { return float64(registry.Current().Revision) })
	gauge(reg, "substorm_gateway_instruments", "Instruments that this pod receives.",
		func() float64 { return float64(len(registry.Current().Instruments())) })
	gauge(reg, "substorm_gateway_problems", "Instruments that this pod cannot receive as declared.",
		func() float64 { return float64(len(registry.Current().Problems)) })
}
