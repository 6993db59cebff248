// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/progress"
)

// Outcome is what a line of the report is about.
type Outcome string

// The values of Outcome.
const (
	OutcomeUnplaced Outcome = "unplaced"
	OutcomeVersion  Outcome = "version"
	OutcomeSummary  Outcome = "summary"
)

// Line is a line of the report for programs.
type Line struct {
	Outcome Outcome `json:"outcome"`
	Name    string  `json:"name"`
	// Reason and Error say why it could not be placed.
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// Key and ID of a new version.
	Key string `json:"key,omitempty"`
	ID  string `json:"id,omitempty"`
}

// Summary is the last line of the report for programs.
type Summary struct {
	Outcome Outcome `json:"outcome"`
	// Seen is how many things the tree has; each is in one of the next four.
	Seen uint64 `json:"seen"`
	// Registered were announced, or would be where DryRun is set; Versions are those
	// of them whose name the archive had with other bytes.
	Registered uint64 `json:"registered"`
	Versions   uint64 `json:"versions"`
	// Unchanged were not read: the archive lists them with their size and
	// modification time. Touched were read, and the archive has those very bytes.
	Unchanged uint64 `json:"unchanged"`
	Touched   uint64 `json:"touched"`
	// Unplaced by reason. Those that are Missing are none of Seen.
	Unplaced map[Reason]uint64 `json:"unplaced"`
	// Bytes of what was registered, and how many were read.
	Bytes     uint64  `json:"bytes"`
	BytesRead uint64  `json:"bytesRead"`
	Seconds   float64 `json:"seconds"`
	DryRun    bool    `json:"dryRun,omitempty"`
	Run       string  `json:"run"`
}

func (s Summary) unplaced() (sum uint64) {
	for _, n := range s.Unplaced {
		sum += n
	}
	return sum
}

// report says what becomes of things, line by line, and how far the import has come.
type report struct {
	out   io.Writer
	data  *output.Encoder // nil for people
	shown *progress.Progress
	began time.Time

	mu    sync.Mutex
	sum   Summary
	total int64 // things in the tree, once they are counted
	err   error // of out
}

func newReport(cfg Config) *report {
	r := &report{began: time.Now(), sum: Summary{Outcome: OutcomeSummary, Unplaced: map[Reason]uint64{}, DryRun: cfg.DryRun}}
	r.shown = progress.Start(cfg.Notes, cfg.Quiet, r.state)
	r.out = r.shown.Above(cfg.Out)
	if cfg.Format.IsData() {
		r.data = cfg.Format.Encoder(r.out)
	}
	return r
}

// count changes the sums.
func (r *report) count(f func(*Summary)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.sum)
}

func (r *report) unplaced(name string, u *unplaced) {
	r.count(func(s *Summary) { s.Unplaced[u.reason]++ })
	r.line(Line{Outcome: OutcomeUnplaced, Name: name, Reason: u.reason, Error: u.err.Error()}, "%s: not placed: %s: %v", name, u.reason, u.err)
}

func (r *report) version(p *placement) {
	r.line(Line{Outcome: OutcomeVersion, Name: p.notice.Name, Key: p.notice.Key, ID: p.notice.ID},
		"%s: a new version, the archive has other bytes under this name: %s", p.name, p.notice.ID)
}

func (r *report) line(value any, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if r.data != nil {
		err = r.data.Encode(value)
	} else {
		_, err = fmt.Fprintf(r.out, format+"\n", args...)
	}
	r.err = errors.Join(r.err, err)
}

// state is how far the import has come.
func (r *report) state() progress.State {
	s, took := r.sums()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Seen == 0 {
		return progress.State{} // it waits, and has said for what
	}
	return progress.State{Done: int64(s.Seen), Total: r.total, Text: s.text(took)}
}

func (r *report) sums() (Summary, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sum
	s.Unplaced = maps.Clone(r.sum.Unplaced)
	return s, time.Since(r.began)
}

// end prints the sums. Errors: of out, and that something could not be placed.
func (r *report) end(run string) error {
	r.shown.Stop()
	s, took := r.sums()
	s.Seconds, s.Run = took.Seconds(), run
	r.line(s, "%s", s.text(took))
	if r.err != nil {
		return r.err
	}
	if n := s.unplaced(); n > 0 {
		return fmt.Errorf("%s could not be placed: the report says why of each; all else was", humanize.Comma(int64(n)))
	}
	return nil
}

func (s Summary) text(took time.Duration) string {
	var b strings.Builder
	verb := "registered"
	if s.DryRun {
		verb = "to register"
	}
	count := func(n uint64) string { return humanize.Comma(int64(n)) }
	fmt.Fprintf(&b, "%s seen: %s %s (%s", count(s.Seen), count(s.Registered), verb, humanize.IBytes(s.Bytes))
	if s.Versions > 0 {
		fmt.Fprintf(&b, ", %s new versions", count(s.Versions))
	}
	fmt.Fprintf(&b, "), %s unchanged", count(s.Unchanged))
	if s.Touched > 0 {
		fmt.Fprintf(&b, ", %s touched", count(s.Touched))
	}
	fmt.Fprintf(&b, ", %s not placed", count(s.unplaced()))
	for i, reason := range slices.Sorted(maps.Keys(s.Unplaced)) {
		separator := map[bool]string{true: " (", false: ", "}[i == 0]
		fmt.Fprintf(&b, "%s%s %s", separator, reason, count(s.Unplaced[reason]))
	}
	if len(s.Unplaced) > 0 {
		b.WriteString(")")
	}
	fmt.Fprintf(&b, "; read %s in %v", humanize.IBytes(s.BytesRead), took.Round(time.Second/10))
	return b.String()
}
