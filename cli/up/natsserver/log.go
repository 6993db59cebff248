// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
)

// logger writes what the server says as lines of this process's log. Messages that the server logs while all is well are of interest only
// for troubleshooting: they are logged as debug.
type logger struct {
	log *slog.Logger
	// link gets what is said of the link to a hub.
	link *problems
	mu   sync.Mutex
	last string
	// unwritten is the first write of a stream that failed.
	unwritten string
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
	text, level := fmt.Sprintf(format, v...), slog.LevelWarn
	if summary.MatchString(text) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "NATS server: "+text)
}

// summary matches what the server says of a stream whose summary is older than its messages, as after every power cut: it reads the messages instead.
var summary = regexp.MustCompile(`^Filestore .*([Ss]tate (is )?outdated|state from index errored)`)

// Errorf logs what keeps a link away once, until it stands: a hub may be away for weeks.
func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if l.link.note(text) {
		l.log.Debug("NATS server: " + text)
		return
	}
	if failedWrite.MatchString(text) {
		l.noteWriteFailure(text)
	}
	l.log.Error("NATS server: " + text)
}

// failedWrite matches what the server says of a stream that takes nothing more.
var failedWrite = regexp.MustCompile(`[Cc]ritical write error: `)

func (l *logger) noteWriteFailure(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwritten = cmp.Or(l.unwritten, text)
}

// writeFailure is what the server said of the first write that failed; empty if none did.
func (l *logger) writeFailure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten
}

// forget drops what was said of a server that is started again.
func (l *logger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.unwritten = "", ""
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

// problems are what the server says of the link to a hub that does not stand.
type problems struct {
	mu   sync.Mutex
	last string
}

// ofLink is how the server begins to speak of a link, as a connection and as one that it tries to open.
var ofLink = regexp.MustCompile(`^(?:.* - lid:\d+ - |Error trying to connect as leafnode to remote server .* \(attempt \d+\): )`)

// ephemeral is our own end of a connection, which each try has another of.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->`)

// note keeps a line that is about the link, and returns whether it says what the one before said.
func (p *problems) note(line string) (again bool) {
	prefix := ofLink.FindString(line)
	if prefix == "" || strings.Contains(line, " Violation on ") { // of a subject, over a link that stands
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ephemeral.ReplaceAllString(line[len(prefix):], "")
	again = text == p.last
	p.last = text
	return again
}

func (p *problems) newest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *problems) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = ""
}
