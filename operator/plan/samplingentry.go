// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// samplingEntry is spec.sampling as gateways know it, intervals filled in.
func samplingEntry(s *v1alpha1.Sampling) *wire.SamplingEntry {
	if s == nil {
		return nil
	}
	others := wire.ChannelSampling{State: samplingState(s.State), IntervalMillis: intervalMillis(s.Interval, 0)}
	entry := &wire.SamplingEntry{Channels: []wire.ChannelSampling{others}}
	for _, c := range s.Channels {
		entry.Channels = append(entry.Channels, wire.ChannelSampling{
			Channel: c.Name, State: samplingState(c.State), IntervalMillis: intervalMillis(c.Interval, others.IntervalMillis),
		})
	}
	if s.ConsumerRequests == v1alpha1.ConsumerRequestsAllow {
		entry.ConsumersMayAsk = true
		entry.MinIntervalMillis = intervalMillis(s.MinInterval, consumersMinInterval.Milliseconds())
	}
	return entry
}
