// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/wire"
)

// A list always has all objects of a day, even if the bundle holds only the new ones: it replaces
// the list of an earlier bundle, so that the lists in a folder together describe the folder.

// head is the first line of a list, with the rights of the listed objects.
type head struct {
	Format     int               `json:"format"`
	Site       string            `json:"site"`
	Instrument string            `json:"instrument"`
	Day        wire.Day          `json:"day"`
	Rights     *wire.RightsEntry `json:"rights,omitempty"`
}

// line is one object of a list.
type line struct {
	Path string `json:"path"`
	// State is a wire.Record's Outcome. It is absent of what is current.
	State  wire.State `json:"state,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// Retracted: the object expired after it was retracted, and was not restored.
	Retracted bool `json:"retracted,omitempty"`
	Damaged   bool `json:"damaged,omitempty"`
	endpoint.Facts
}

// list writes a list, in two passes: the first computes its size, so that no list is held.
func (s *sending) list(h head, all []chosen) error {
	first := append(marshal(h), '\n')
	size := int64(len(first))
	for l := range lines(all) {
		size += int64(len(l))
	}
	if err := s.tar.WriteHeader(s.header(folder+h.Instrument+"/"+string(h.Day)+".jsonl", size, time.Unix(0, 0))); err != nil {
		return err
	}
	if _, err := s.tar.Write(first); err != nil {
		return err
	}
	for l := range lines(all) {
		if _, err := s.tar.Write(l); err != nil {
			return err
		}
	}
	return nil
}

// lines are the lines of a list below its head.
func lines(all []chosen) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range all {
			c := &all[i]
			if c.hidden || c.record.State == wire.StateSuperseded {
				continue
			}
			l := line{Path: c.path, Damaged: c.damaged, Facts: endpoint.FactsOf(c.record)}
			if c.record.State != wire.StateCurrent {
				l.State, l.Reason = c.record.Outcome(), c.record.Reason
				l.Retracted = c.record.Expired() && c.record.IsRetraction()
			}
			if !yield(append(marshal(l), '\n')) {
				return
			}
		}
	}
}

// marshal writes what can always be written: text, numbers and times.
func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}
