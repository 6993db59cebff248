// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// sourcesOf are a planned stream's sources as JetStream takes them.
func sourcesOf(s plan.Stream) []*jetstream.StreamSource {
	var all []*jetstream.StreamSource
	for _, source := range s.Sources {
		all = append(all, &jetstream.StreamSource{
			Name: source.Stream, FilterSubject: source.Subjects, OptStartSeq: source.From,
			External: &jetstream.ExternalStream{APIPrefix: source.APIPrefix, DeliverPrefix: source.DeliverPrefix},
		})
	}
	return all
}

// askLeaves returns what our server says about the leaves' streams, by the leaf's
// code: of each leaf the worse of its two.
func askLeaves(ctx context.Context, js jetstream.JetStream, want wanted, now func() time.Time) (map[string]plan.LeafReport, error) {
	var leaves map[string]plan.LeafReport
	for _, s := range want.streams {
		if len(s.Sources) == 0 {
			continue
		}
		stream, err := js.Stream(ctx, s.Name)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", s.Name, err)
		}
		at := now()
		for _, info := range stream.CachedInfo().Sources {
			code, ok := wire.SiteOfStream(info.Name)
			if !ok {
				continue
			}
			report := leafReport(info, at)
			if other, seen := leaves[code]; seen {
				report = worse(other, report)
			}
			if leaves == nil {
				leaves = map[string]plan.LeafReport{}
			}
			leaves[code] = report
		}
	}
	return leaves, nil
}

func leafReport(info *jetstream.StreamSourceInfo, at time.Time) plan.LeafReport {
	r := plan.LeafReport{At: at, Lag: info.Lag}
	if info.Active >= 0 { // -1: never
		r.SeenAt = at.Add(-info.Active)
	}
	if info.Error != nil {
		r.Problem = info.Error.Description
	}
	return r
}

// worse joins what is said of a leaf's two streams.
func worse(a, b plan.LeafReport) plan.LeafReport {
	if b.SeenAt.Before(a.SeenAt) {
		a.SeenAt = b.SeenAt
	}
	a.Lag += b.Lag
	if a.Problem == "" {
		a.Problem = b.Problem
	}
	return a
}

// setLeaves says whether a leaf came, went, or has another problem.
func (f *facts) setLeaves(leaves map[string]plan.LeafReport) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := len(leaves) != len(f.backends.Leaves)
	for code, is := range leaves {
		was, known := f.backends.Leaves[code]
		changed = changed || !known || was.Connected() != is.Connected() || was.Problem != is.Problem
	}
	f.backends.Leaves = leaves
	return changed
}
