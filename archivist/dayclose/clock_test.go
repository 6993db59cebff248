// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// While our clock and the NATS server's do not agree no day is closed: a closed day may expire.
func TestClockThatJumps(t *testing.T) {
	l := start(t)
	c := l.closer()
	c.cfg.Agree = New(c.cfg.server()).cfg.Agree
	now := time.Now().UTC()
	l.received("camera", wire.DayOf(now), 3)
	status := l.pass(c, now.AddDate(1, 0, 0))
	if status.ClosedTo != "" || !strings.Contains(status.WaitsFor, stream.ErrClock.Error()) {
		t.Errorf("with a clock that is a year ahead: closed to %q, waits for %q", status.ClosedTo, status.WaitsFor)
	}
	if files := l.Keys("ledger/"); len(files) > 0 {
		t.Errorf("closed days: %v", files)
	}
	status = l.pass(c, now)
	if status.ClosedTo == "" || strings.Contains(status.WaitsFor, stream.ErrClock.Error()) {
		t.Errorf("with a clock that is right: closed to %q, waits for %q", status.ClosedTo, status.WaitsFor)
	}
}

// server is a configuration that asks the NATS server.
func (cfg Config) server() Config {
	cfg.Agree = nil
	return cfg
}
