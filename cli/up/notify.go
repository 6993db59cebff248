// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// askAgain is the pause after a look that found the process not healthy: less than what is left of the watchdog's time.
const askAgain = time.Second

// manager is the service manager, systemd say, that may have started this process: see sd_notify(3). Without one nothing is sent.
type manager struct {
	// started: the manager was notified that the Site is ready.
	started atomic.Bool
	// warn gets the first error of telling it.
	warn   func(error)
	warned atomic.Bool
}

func (m *manager) tell(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil && !m.warned.Swap(true) {
		m.warn(err)
	}
}

// waiting says what the Site waits for.
func (m *manager) waiting(lacks []string) { m.tell(status("waiting: " + strings.Join(lacks, "; "))) }

// ready says that the Site is ready.
func (m *manager) ready(said string) {
	m.started.Store(true)
	m.tell(daemon.SdNotifyReady, status(said))
}

// stopping says that the process is about to end.
func (m *manager) stopping() { m.tell(daemon.SdNotifyStopping, status("what was begun is finished")) }

func status(said string) string { return "STATUS=" + strings.ReplaceAll(said, "\n", " ") }

// watch tells the service manager, twice in the time that it allows (WatchdogSec=), that the process is healthy, until ctx ends. If the
// process is not healthy, the manager hears nothing, and restarts it. Until the Site is ready, a healthy process gets more time to start.
func (m *manager) watch(ctx context.Context, healthy func(context.Context) error, unhealthy func(error)) error {
	allowed, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("the service manager's WATCHDOG_USEC: %w", err)
	}
	if allowed == 0 {
		<-ctx.Done()
		return nil
	}
	for {
		wait := allowed / 2
		look, cancel := context.WithTimeout(ctx, allowed/4)
		err := healthy(look)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			unhealthy(err)
			wait = min(wait, askAgain)
		case m.started.Load():
			m.tell(daemon.SdNotifyWatchdog)
		default:
			m.tell(daemon.SdNotifyWatchdog, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", allowed.Microseconds()))
		}
		if !retry.Sleep(ctx, wait) {
			return nil
		}
	}
}

// healthy errs where a part of the process does not answer before ctx ends, or cannot work any more.
func (s *site) healthy(ctx context.Context) error {
	if err := s.client.List(ctx, &v1alpha1.SiteList{}); err != nil {
		return fmt.Errorf("the Kubernetes API: %w", err)
	}
	if err := s.nats.Stuck(); err != nil { // a process that is started again on a full disk may not come up at all
		return err
	}
	return s.pods.Alive(ctx)
}

func (s *site) startWatchdog(parts *stack) {
	parts.start("watchdog", func(ctx context.Context) error {
		return s.manager.watch(ctx, s.healthy, func(err error) {
			s.log.Error("the process is not healthy; the service manager restarts it if this lasts", "error", err)
		})
	}, s.failed)
}
