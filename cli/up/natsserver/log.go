// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// logger writes what the server says as lines of this process's log. What a server says while all is well is of interest to
// somebody who looks for a fault only: it is logged as debug.
type logger struct {
	log  *slog.Logger
	mu   sync.Mutex
	last string
}

func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug("NATS server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Debugf(format string, v ...any) {
	l.log.Debug("NATS server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Tracef(format string, v ...any) {
	l.log.Debug("NATS server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("NATS server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Errorf(format string, v ...any) {
	l.log.Error("NATS server: " + fmt.Sprintf(format, v...))
}

// Fatalf does not end the process: Start returns what it says.
func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
	l.log.Error("NATS server: " + l.last)
}

// fatal is what the server said when it gave up; nil where it did not.
func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return nil
	}
	return errors.New(l.last)
}
