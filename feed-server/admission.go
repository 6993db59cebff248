// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/cgroup"
	"github.com/substorm/substorm/internal/wire"
)

// The values of Config.AccessLog that are no file.
const (
	accessLogOff    = "off"
	accessLogStdout = "stdout"
)

// openAdmission makes what all endpoints share.
func (s *server) openAdmission() error {
	cfg := &s.cfg
	proxies, err := endpoint.ParseProxies(cfg.Proxies)
	if err != nil {
		return err
	}
	out, err := openAccessLog(cfg.AccessLog)
	if err != nil {
		return err
	}
	if out != nil {
		s.accessLog = endpoint.NewAccessLog(out, s.metrics)
	}
	s.admission = endpoint.NewAdmission(endpoint.AdmissionConfig{
		Limits: cfg.Limits, Certificates: s.certificates, Proxies: proxies, MaxSockets: cfg.MaxSockets, MaxConnections: cfg.MaxConnections, GiveWay: cfg.GiveWay,
		AccessLog: s.accessLog, Logger: s.log, Metrics: s.metrics,
	})
	return nil
}

// lookAtCPU looks each second whether some clients have to give way to others.
func (s *server) lookAtCPU(ctx context.Context) error {
	cpu := cgroup.NewCPU(time.Now())
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case now := <-tick.C:
			s.admission.Precedence.Look(cpu.Use(now))
		}
	}
}

// givingWay is what reports say of it.
func (s *server) givingWay() *wire.GivingWay {
	cause, robots, bulk := s.admission.Precedence.GivingWay()
	if cause == "" {
		return nil
	}
	return &wire.GivingWay{Cause: cause, Robots: robots, Bulk: bulk}
}

// openAccessLog returns where the access log goes; nil: nowhere.
func openAccessLog(to string) (io.Writer, error) {
	switch to {
	case "", accessLogOff:
		return nil, nil
	case accessLogStdout:
		return os.Stdout, nil
	}
	f, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--access-log: %w", err)
	}
	return f, nil
}
