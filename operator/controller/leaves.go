// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
)

// sourcesOf are a planned stream's sources as JetStream takes them.
func sourcesOf(s bus.Stream) []*jetstream.StreamSource {
	var all []*jetstream.StreamSource
	for _, source := range s.Sources {
		is := &jetstream.StreamSource{
			Name: source.Stream, OptStartSeq: source.From,
			External: &jetstream.ExternalStream{APIPrefix: source.APIPrefix, DeliverPrefix: source.DeliverPrefix},
		}
		for _, subject := range source.Subjects {
			is.SubjectTransforms = append(is.SubjectTransforms, jetstream.SubjectTransformConfig{Source: subject.From, Destination: subject.To})
		}
		all = append(all, is)
	}
	return all
}

// askLeaves returns what our server reports about the leaves' streams, by the leaf's code: for each leaf the worse of its two streams and
// of their copies. Copied is the JetStream of the account of leaves; nil if there is no such account.
func askLeaves(ctx context.Context, js, copied jetstream.JetStream, want wanted, now func() time.Time) (map[string]plan.LeafReport, error) {
	leaves := map[string]plan.LeafReport{}
	if err := askSources(ctx, js, want.streams, want.marker.Code, now, leaves); err != nil {
		return nil, err
	}
	if copied != nil {
		if err := askSources(ctx, copied, want.copied, want.marker.Code, now, leaves); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}

// askSources adds reports about the sources of streams.
func askSources(ctx context.Context, js jetstream.JetStream, streams []bus.Stream, hub string, now func() time.Time, leaves map[string]plan.LeafReport) error {
	for _, s := range streams {
		if len(s.Sources) == 0 {
			continue
		}
		stream, err := js.Stream(ctx, s.Name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		at := now()
		for _, info := range stream.CachedInfo().Sources {
			report := leafReport(info, at)
			code, isCopy := wire.ParseCopiedStream(hub, info.Name)
			switch site, isLeaf := wire.SiteOfStream(info.Name); {
			case isCopy && info.Active < 0 && report.Problem == "":
				report.Problem = fmt.Sprintf("stream %s is not heard from the account of leaves, from which our account imports it", info.Name)
			case !isCopy && !isLeaf:
				continue
			case !isCopy:
				code = site
			}
			if other, seen := leaves[code]; seen {
				report = worse(other, report)
			}
			leaves[code] = report
		}
	}
	return nil
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

// worse joins the reports of a leaf's two streams.
func worse(a, b plan.LeafReport) plan.LeafReport {
	if b.SeenAt.Before(a.SeenAt) {
		a.SeenAt = b.SeenAt
	}
	a.Lag += b.Lag
	a.Problem = cmp.Or(a.Problem, b.Problem)
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
