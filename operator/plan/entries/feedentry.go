// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"slices"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
)

// feedEntry is a Feed as feed servers know it.
func feedEntry(site *v1alpha1.Site, feed *v1alpha1.Feed, v accept.FeedVerdict, revision int64) wire.FeedEntry {
	entry := wire.FeedEntry{
		UID: string(feed.UID), Generation: feed.Generation, Revision: revision,
		Feed: feed.Name, Instruments: v.Selects(), Channels: slices.Sorted(slices.Values(feed.Spec.Channels)),
	}
	if entry.Instruments == nil {
		entry.Instruments = []string{}
	}
	entry.Notices, entry.Telemetry = bus.FeedStreams(site, feed)
	entry.Backfill = accept.Backfills(feed)
	if feed.Spec.Access != nil {
		entry.Live = string(feed.Spec.Access.Live)
	}
	return entry
}
