// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/retry"
)

const (
	// graceShare is the part of the drain timeout, and maxGrace the time, in
	// which new connections are still taken: endpoints take a while to spread.
	graceShare = 6
	maxGrace   = 5 * time.Second
	// finishTimeout is for the final report to NATS.
	finishTimeout = 10 * time.Second
)

// drain finishes what was begun: first the pod is not ready, a little later it
// takes no more, and what is not done after the drain timeout is reset.
//
// unsettle ends what only changes things.
func (g *gateway) drain(unsettle func()) {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.DrainTimeout)
	defer cancel()
	g.log.Info("draining", "timeout", g.cfg.DrainTimeout)
	g.health.draining.Store(true)
	g.reporter.requestReport()
	retry.Sleep(ctx, min(maxGrace, g.cfg.DrainTimeout/graceShare))
	unsettle()
	var ways sync.WaitGroup
	ways.Go(func() {
		var objects sync.WaitGroup
		objects.Go(func() { g.web.Drain(ctx) })
		g.tcp.Drain(ctx)
		objects.Wait()
		g.archive.Wait(ctx)
		g.archive.Flush(ctx)
	})
	ways.Go(func() {
		if err := g.udp.Drain(ctx); err != nil {
			g.log.Warn("telemetry was dropped, and counted", "error", err)
		}
	})
	ways.Wait()
}

// finish settles what was published, writes the last totals, and closes everything.
func (g *gateway) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	err := errors.Join(g.messages.Close(ctx), g.notices.Close(ctx))
	// A closed ledger knows no totals. Reports leave it half of the time.
	reports, done := context.WithTimeout(ctx, finishTimeout/2)
	g.reporter.gathers = false
	g.reporter.reportInstruments(reports)
	done()
	err = errors.Join(err, g.ledger.Close(ctx), g.spool.Close(), g.replicas.close())
	if err != nil {
		// Nothing that was receipted is lost: the next incarnation writes the rest.
		g.log.Warn("stopped before everything was written", "error", err)
	}
	g.reporter.unwritten = err != nil
	g.reporter.reportLast(ctx)
	g.nc.Close()
	g.log.Info("stopped")
	return g.volume.Close()
}

// close releases what open made before it failed.
func (g *gateway) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if g.udp != nil {
		_ = g.udp.Drain(ctx)
	}
	if g.messages != nil {
		_ = g.messages.Close(ctx)
	}
	if g.notices != nil {
		_ = g.notices.Close(ctx)
	}
	if g.ledger != nil {
		_ = g.ledger.Close(ctx)
	}
	if g.spool != nil {
		_ = g.spool.Close()
	}
	_ = g.replicas.close()
	if g.nc != nil {
		g.nc.Close()
	}
	if g.volume != nil {
		_ = g.volume.Close()
	}
}
