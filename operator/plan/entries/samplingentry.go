// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// SamplingEntry is spec.sampling as gateways know it, intervals filled in.
func SamplingEntry(s *v1alpha1.Sampling) *wire.SamplingEntry {
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

// consumersMinInterval is the shortest that consumers may ask for where nothing is
// said.
const consumersMinInterval = time.Second

func samplingState(s v1alpha1.SamplingState) string {
	switch s {
	case v1alpha1.SamplingPaused, "Off": // Instruments that were stored before the value was renamed have Off
		return wire.SamplingPaused
	default:
		return wire.SamplingObserving
	}
}

func intervalMillis(d *metav1.Duration, otherwise int64) int64 {
	if d == nil {
		return otherwise
	}
	return d.Milliseconds()
}
