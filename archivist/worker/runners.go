// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"time"

	"github.com/substorm/substorm/archivist/compact"
	"github.com/substorm/substorm/archivist/dayclose"
	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/descriptions"
	"github.com/substorm/substorm/archivist/forward"
	"github.com/substorm/substorm/archivist/gaps"
	"github.com/substorm/substorm/archivist/guests"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/archivist/index"
	"github.com/substorm/substorm/archivist/manifest"
	"github.com/substorm/substorm/archivist/names"
	"github.com/substorm/substorm/archivist/scrub"
	"github.com/substorm/substorm/archivist/segment"
	"github.com/substorm/substorm/internal/stream"
)

// runner is a part of the holder's work. It ends with its context or the lease.
type runner interface {
	Run(ctx context.Context) error
}

func (a *archivist) base(lease *stream.Lease) holder.Base {
	return holder.Base{Site: a.cfg.Site, Pod: a.cfg.Pod, Incarnation: a.cfg.Incarnation, JetStream: a.cfg.JetStream, Store: a.cfg.Store, Lease: lease, Log: a.cfg.Log}
}

func (a *archivist) index(lease *stream.Lease, deleter *deletion.Deleter) *index.Keeper {
	return index.New(index.Config{Base: a.base(lease), Deleter: deleter, Metrics: a.metrics.index})
}

func (a *archivist) writer(lease *stream.Lease, deleter *deletion.Deleter, keeper *index.Keeper) *manifest.Writer {
	return manifest.New(manifest.Config{
		Base: a.base(lease), Deleter: deleter, RepeatWindow: a.repeatWindow, Known: a.known, Expires: a.expires,
		Naming: a.naming, Held: a.held, NoticeRetention: a.cfg.NoticeRetention, PartInterval: a.cfg.PartInterval, Memory: a.cfg.Memory, Index: keeper,
		Metrics: a.metrics.manifest,
	})
}

func (a *archivist) names(lease *stream.Lease) runner {
	return names.NewClaimRebuilder(names.ClaimRebuilderConfig{Base: a.base(lease), Metrics: a.metrics.names})
}

func (a *archivist) sweeper(lease *stream.Lease, deleter *deletion.Deleter, writer *manifest.Writer) *manifest.Sweeper {
	return manifest.NewSweeper(manifest.SweepConfig{Base: a.base(lease), Deleter: deleter, Interval: a.cfg.SweepInterval, Age: a.cfg.SweepAge, Metrics: a.metrics.manifest}, writer)
}

func (a *archivist) cutter(lease *stream.Lease) *segment.Cutter {
	return segment.New(segment.Config{
		Base: a.base(lease), Limits: a.segmentLimits, Channels: a.channels, LateAfter: a.lateAfter, ScratchDir: a.cfg.ScratchDir,
		Metrics: a.metrics.segment,
	})
}

func (a *archivist) forwarder(lease *stream.Lease) runner {
	return forward.New(forward.Config{Base: a.base(lease), Declared: a.cfg.Declared, Networks: a.cfg.ForwardNetworks, Metrics: a.metrics.forward})
}

func (a *archivist) gaps(lease *stream.Lease, keeper *index.Keeper) runner {
	return gaps.New(gaps.Config{
		Base: a.base(lease), Declared: a.cfg.Declared, Complete: keeper.Complete, Interval: a.cfg.GapsInterval, Metrics: a.metrics.gaps,
	})
}

func (a *archivist) descriptions(lease *stream.Lease) runner {
	return descriptions.New(descriptions.Config{
		Base: a.base(lease), Declared: a.cfg.Declared, Interval: a.cfg.DescribeInterval, Metrics: a.metrics.descriptions,
	})
}

func (a *archivist) guests(lease *stream.Lease) runner {
	return guests.New(guests.Config{Base: a.base(lease), Interval: a.cfg.DescribeInterval, Metrics: a.metrics.guests})
}

func (a *archivist) scrub(lease *stream.Lease) runner {
	return scrub.New(scrub.Config{Base: a.base(lease), Rate: a.cfg.ScrubRate, Interval: a.cfg.ScrubInterval, Metrics: a.metrics.scrub})
}

func (a *archivist) closer(lease *stream.Lease) *dayclose.Closer {
	return dayclose.New(dayclose.Config{Base: a.base(lease), Interval: a.cfg.CloseInterval, After: a.cfg.CloseAfter, Metrics: a.metrics.closing})
}

func (a *archivist) compactor(lease *stream.Lease, deleter *deletion.Deleter, keeper *index.Keeper) *compact.Compactor {
	return compact.New(compact.Config{
		Base: a.base(lease), PackBelow: a.packBelow, Deleter: deleter, Scarce: a.cfg.Budget.Scarce,
		Interval: a.cfg.CompactInterval, CloseAfter: a.cfg.CompactAfter, Grace: a.cfg.CompactGrace, PackSize: a.cfg.PackSize,
		ScratchDir: a.cfg.ScratchDir, Index: keeper, Metrics: a.metrics.compact,
	})
}

func (a *archivist) trimmer(lease *stream.Lease, name string, retention time.Duration, archived func() stream.Position, subjects ...string) *trimmer {
	return &trimmer{
		js: a.cfg.JetStream, stream: name, subjects: subjects, retention: retention, interval: a.cfg.TrimInterval, archived: archived,
		budget: a.cfg.Budget, lease: lease, log: a.cfg.Log, metrics: a.metrics,
	}
}
