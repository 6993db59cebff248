// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"slices"
	"time"

	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/access"
)

// grant returns what a reader may have of what a consumer selects, which may be
// less: or why that is nothing.
func grant(s *registry.Snapshot, sel registry.Selection, who identity) (*session.Filter, *problem) {
	f := &session.Filter{
		Notices: sel.Notices != "", Telemetry: sel.Telemetry != "",
		Channels: sel.Channels, Instruments: map[string]time.Duration{},
	}
	now := time.Now()
	for name := range sel.Instruments {
		if s.Decide(sel.Feed, who.reader, name, time.Time{}, now) == access.Granted {
			f.Instruments[name] = embargo(s, name, who)
		}
	}
	switch {
	case len(f.Instruments) > 0, len(sel.Instruments) == 0 && who.reader.Name != "":
		return f, nil
	case who.reader.Name == "":
		return nil, newProblem(http.StatusUnauthorized, "FeedConsumer %s is not for everybody: show its token, Authorization: Bearer …", sel.Consumer.Consumer)
	default:
		return nil, newProblem(http.StatusForbidden, "%s may read no Instrument that FeedConsumer %s selects: see spec.access of the Instruments",
			who.reader.Name, sel.Consumer.Consumer)
	}
}

// embargo is how long after its observation an instrument's data is kept from a
// reader. access.Decide decides; that it goes by the data's age alone lets the
// answer be found once, and used for each message.
func embargo(s *registry.Snapshot, instrument string, who identity) time.Duration {
	entry := s.Instruments[instrument].Access
	if entry == nil || slices.Contains(entry.Readers, who.reader.Name) {
		return 0
	}
	return time.Duration(entry.EmbargoMillis) * time.Millisecond
}
