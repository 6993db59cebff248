// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// missing is the gap record for messages that the stream has no more.
func (s *Session) missing(src *source, m hub.Missing, now time.Time) wire.Gap {
	return s.gap(src.stream, wire.Gap{
		From: wire.ResumeToken{Epoch: m.Epoch, Sequence: m.From}.String(), To: wire.ResumeToken{Epoch: m.Epoch, Sequence: m.To}.String(),
		Count: m.Count, Reason: m.Reason,
	}, now)
}

// gap completes a gap record, and counts it.
func (s *Session) gap(stream string, g wire.Gap, now time.Time) wire.Gap {
	g.Consumer, g.Stream, g.At = s.cfg.Consumer, stream, now.UTC()
	s.cfg.Meter.Gap(g.Reason, g.Count, now)
	return g
}

// record is the entry for a gap record.
func (s *Session) record(g wire.Gap) Entry {
	data, err := wire.Encode(g)
	if err != nil {
		s.cfg.Logger.Error("a gap record cannot be written", "error", err)
	}
	return Entry{Gap: data, Token: s.token}
}

// gaps are gap records that wait until the client takes something. Gaps of one stream and reason
// are merged, so there are few.
type gaps []wire.Gap

// add adds the newest.
func (all gaps) add(g wire.Gap) gaps {
	for i, is := range all {
		if is.Stream == g.Stream && is.Reason == g.Reason {
			g.From = is.From // the first of them
			g.Count += is.Count
			g.Exact = g.Exact && is.Exact
			all[i] = g
			return all
		}
	}
	return append(all, g)
}
