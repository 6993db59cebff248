// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/metric"
)

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
	metric.GaugeFunc(reg, "substorm_gateway_memory_budget_bytes", "Bytes of memory that received objects may take.",
		stat(func(s memory.Stats) int64 { return s.Budget }))
	metric.GaugeFunc(reg, "substorm_gateway_memory_used_bytes", "Bytes of memory that received objects take.",
		stat(func(s memory.Stats) int64 { return s.MemoryUsed }))
	metric.GaugeFunc(reg, "substorm_gateway_memory_waiting", "Objects that wait for memory: nothing is read of them.",
		stat(func(s memory.Stats) int64 { return s.Waiting }))
	metric.GaugeFunc(reg, "substorm_gateway_scratch_size_bytes", "Bytes on the volume that received objects may take.",
		stat(func(s memory.Stats) int64 { return s.ScratchSize }))
	metric.GaugeFunc(reg, "substorm_gateway_scratch_used_bytes", "Bytes on the volume that received objects take.",
		stat(func(s memory.Stats) int64 { return s.ScratchUsed }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "substorm_gateway_scratch_spills_total",
		Help: "Objects, or parts of them, that went to the volume because memory was short.",
	}, stat(func(s memory.Stats) int64 { return s.Spills })))
}

func registerRegistry(reg prometheus.Registerer, registry *intake.Registry) {
	metric.GaugeFunc(reg, "substorm_gateway_registry_revision", "Revision of the registry that this pod runs.",
		func() float64 { return float64(registry.Current().Revision) })
	metric.GaugeFunc(reg, "substorm_gateway_instruments", "Instruments that this pod receives.",
		func() float64 { return float64(len(registry.Current().Instruments())) })
	metric.GaugeFunc(reg, "substorm_gateway_problems", "Instruments that this pod cannot receive as declared.",
		func() float64 { return float64(len(registry.Current().Problems)) })
}
