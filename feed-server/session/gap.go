// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// missing is the entry for a run of messages that the stream has no more.
func (s *Session) missing(src *source, m hub.Missing, now time.Time) Entry {
	return s.gap(src.stream, wire.Gap{
		From: wire.ResumeToken{Epoch: m.Epoch, Sequence: m.From}.String(), To: wire.ResumeToken{Epoch: m.Epoch, Sequence: m.To}.String(),
		Count: m.Count, Reason: m.Reason,
	}, now)
}

// gap is the entry for a gap record, which is counted.
func (s *Session) gap(stream string, g wire.Gap, now time.Time) Entry {
	g.Consumer, g.Stream, g.At = s.cfg.Consumer, stream, now.UTC()
	data, err := g.Encode()
	if err != nil {
		s.cfg.Logger.Error("a gap record cannot be written", "error", err)
	}
	s.cfg.Meter.Gap(g.Reason, g.Count, now)
	return Entry{Gap: data, Token: s.token}
}
