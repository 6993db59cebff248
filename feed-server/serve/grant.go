// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"time"

	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/problem"
)

// grant returns what a reader may have of what a consumer selects, which may be
// less: or why that is nothing.
func grant(s *registry.Snapshot, sel registry.Selection, who identity) (*session.Filter, *problem.Problem) {
	f := &session.Filter{
		Notices: sel.Notices != "", Telemetry: sel.Telemetry != "",
		Channels: sel.Channels, Site: sel.Site, Instruments: s.Readable(sel, who.reader, time.Now()),
	}
	switch {
	case len(f.Instruments) > 0, len(sel.Instruments) == 0 && who.reader.Name != "":
		return f, nil
	case who.reader.Name == "":
		return nil, problem.New(http.StatusUnauthorized, "FeedConsumer %s is not for everybody: show its token, Authorization: Bearer …", sel.Consumer.Consumer)
	default:
		return nil, problem.New(http.StatusForbidden, "%s may read no Instrument that FeedConsumer %s selects: see spec.access of the Instruments",
			who.reader.Name, sel.Consumer.Consumer)
	}
}
