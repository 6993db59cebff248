// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
)

// grant returns what a reader may have of what a consumer selects, which may be
// less: or why that is nothing.
func grant(s *registry.Snapshot, sel registry.Selection, who endpoint.Identity) (*session.Filter, *problem.Problem) {
	f := &session.Filter{
		Notices: sel.Notices != "", Telemetry: sel.Telemetry != "", Backfill: sel.Feed.Backfill,
		Channels: sel.Channels, Site: sel.Site, Instruments: s.Readable(sel, who.Reader, time.Now()),
	}
	switch {
	case len(f.Instruments) > 0, len(sel.Instruments) == 0 && !who.Reader.Anonymous():
		return f, nil
	case who.Reader.Anonymous():
		return nil, problem.New(http.StatusUnauthorized, "FeedConsumer %s is not for everybody: show its token, Authorization: Bearer …", sel.Consumer.Consumer)
	default:
		return nil, problem.New(http.StatusForbidden, "%s may read no Instrument that FeedConsumer %s selects: see spec.access of the Instruments",
			who.Reader, sel.Consumer.Consumer)
	}
}
