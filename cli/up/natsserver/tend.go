// SPDX-License-Identifier: Apache-2.0

//go:build linux

package natsserver

import (
	"context"
	"time"

	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/retry"
)

const (
	// tendEvery is how often the server is looked at.
	tendEvery = time.Second
	// restartSpace is what the disk must have free before a server whose writes failed is started again: its recovery writes summaries of the
	// streams. Less space would be used up at once.
	restartSpace = 16 << 20
	// maxRestartPause is the longest pause between two starts, where writes fail for another reason than a full disk.
	maxRestartPause = time.Minute
)

// Tend starts the server again where it stores nothing any more and its disk has space, until ctx ends. Clients connect again by themselves.
// It has new streams stage their batches in memory.
func (s *Server) Tend(ctx context.Context) error {
	pause, healthySince := tendEvery, time.Now()
	for retry.Sleep(ctx, tendEvery) {
		s.stage(ctx)
		problem := s.Healthy()
		if problem == nil {
			if time.Since(healthySince) > maxRestartPause {
				pause = tendEvery
			}
			continue
		}
		if free, _, err := diskbudget.Space(s.dir); err != nil || free < restartSpace {
			continue // SpaceLeft of the Site says so
		}
		s.log.log.Warn("the embedded NATS server no longer stores anything; restarting it", "error", problem)
		if err := s.restart(ctx); err != nil && ctx.Err() == nil {
			s.log.log.Error("cannot start the embedded NATS server; retrying", "error", err)
		}
		healthySince = time.Now()
		if !retry.Sleep(ctx, pause) {
			return nil
		}
		pause = min(2*pause, maxRestartPause)
	}
	return nil
}

// Stuck errs where the server stores nothing although its disk has the space with which Tend starts it again.
func (s *Server) Stuck() error {
	problem := s.Healthy()
	if problem == nil {
		return nil
	}
	if free, _, err := diskbudget.Space(s.dir); err == nil && free < restartSpace {
		return nil
	}
	return problem
}

// restart stops the server and starts it with the same options. Its link to a hub is made again by the next Link.
func (s *Server) restart(ctx context.Context) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.stopped {
		return nil
	}
	s.link.is, s.link.linked = nil, false
	s.stop()
	return s.start(ctx)
}
