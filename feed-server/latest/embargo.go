// SPDX-License-Identifier: Apache-2.0

package latest

import (
	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// freeObjects is among how many of the newest free ones a media type is looked for.
const freeObjects = 256

// leastWeight is less than Accept can say (RFC 9110, 12.4.2).
const leastWeight = 0.0001

// findFree is find for clients that may not have data under embargo: hidden objects do not affect
// the result.
func (l *Latest) findFree(v *endpoint.Request, in wire.InstrumentEntry, what string) (best wire.Record, found bool, p *problem.Problem) {
	until := v.Now.Add(-in.Access.Embargo())
	records, err := l.cfg.Catalog.Newest(v.Context(), in.Instrument, freeObjects, until)
	if err != nil {
		return best, false, v.Unreadable(what, err)
	}
	asked, accept := v.URL.Query().Get("type"), v.Request.Header.Values("Accept")
	weight, some := 0.0, false
	for _, r := range records {
		if !v.Sees(in, r.ObservedEnd()) || r.Segment != nil && asked != wire.MediaTypeSegment || asked != "" && asked != r.MediaType {
			continue
		}
		some = true
		q := 1.0
		if asked == "" {
			if q = endpoint.Accepted(accept, archive.MediaType(in, r)); q == 0 && isPage(accept) {
				q = leastWeight
			}
		}
		if q > weight {
			best, found, weight = *r, true, q
		}
	}
	if some && !found {
		return best, false, notAcceptable(what)
	}
	return best, found, nil
}
