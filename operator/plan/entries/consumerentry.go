// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"slices"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// consumerEntry is a FeedConsumer as feed servers know it. Was is the current entry.
func consumerEntry(c *v1alpha1.FeedConsumer, v accept.ConsumerVerdict, secrets workload.Secrets, was wire.ConsumerEntry, revision int64) wire.ConsumerEntry {
	spec, flow := &c.Spec, &c.Spec.Flow
	entry := wire.ConsumerEntry{
		UID: string(c.UID), Generation: c.Generation, Revision: revision,
		Consumer: c.Name, Feed: spec.FeedRef.Name,
		Instruments: slices.Sorted(slices.Values(spec.Filter.InstrumentNames)), Channels: slices.Sorted(slices.Values(spec.Filter.Channels)),
		NoNotices: !v.Notices, NoTelemetry: !v.Telemetry,
		Flow: wire.FlowEntry{Mode: string(flow.Mode)}, Delivery: string(spec.Delivery.Type),
	}
	if flow.Interval != nil {
		entry.Flow.IntervalMillis = flow.Interval.Milliseconds()
	}
	if flow.MaxBytesPerSecond != nil {
		entry.Flow.MaxBytesPerSecond = flow.MaxBytesPerSecond.Value()
	}
	if flow.MaxLag != nil {
		entry.Flow.MaxLagMillis = flow.MaxLag.Milliseconds()
	}
	if flow.Priority == v1alpha1.PriorityUrgent {
		entry.Flow.Priority = wire.PriorityUrgent
	}
	if spec.Delivery.Type == v1alpha1.DeliveryNATS {
		entry.WIS2 = accept.Notified(c)
		// No token is presented: the access is decided here. If that is all of its Feed, another instrument of the Feed changes nothing
		// here.
		switch entry.Instruments = v.Readable; {
		case v.Whole:
			entry.Instruments = nil
		case len(v.Readable) == 0: // an empty list means all
			entry.Instruments = []string{wire.NothingSelected}
		}
		if entry.Durable = bus.KeptDurable(c, secrets[bus.ConsumerSecretName(c)]); entry.Durable == "" && was.UID == entry.UID {
			entry.Durable = was.Durable
		}
		return entry
	}
	entry.MaxConnections = int(spec.MaxConnections)
	entry.Tokens = bus.ConsumerTokens(c, secrets, was.Tokens)
	return entry
}
