// SPDX-License-Identifier: Apache-2.0

// Package summary bounds what a run logs of files and objects: the other side decides how many of them fail, and must not decide
// how long the log is.
package summary

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

// Log counts events of a run by their messages. Its methods may be called from several goroutines.
type Log struct {
	logger *slog.Logger

	mu    sync.Mutex
	kinds []kind
}

// kind is all events with one message, which is a constant of the program.
type kind struct {
	level   slog.Level
	message string
	count   int
	// first are the attributes of the first event.
	first []any
}

// New returns a Log that writes to logger.
func New(logger *slog.Logger) *Log { return &Log{logger: logger} }

// Add counts an event, which is logged at level debug. Args are as those of slog.Logger.Log.
func (l *Log) Add(level slog.Level, message string, args ...any) {
	l.logger.Debug(message, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.kinds, func(k kind) bool { return k.level == level && k.message == message })
	if i < 0 {
		i, l.kinds = len(l.kinds), append(l.kinds, kind{level: level, message: message, first: args})
	}
	l.kinds[i].count++
}

// Flush writes one line for each message, with the count and the first event, and begins again.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kinds {
		l.logger.Log(context.Background(), k.level, k.message, "count", k.count, slog.Group("first", k.first...))
	}
	l.kinds = nil
}
