// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

// Range and precision of histograms: from a microsecond to an hour, three digits.
const (
	histogramMax    = int64(time.Hour / time.Microsecond)
	histogramDigits = 3
)

// shownExamples is how many failures an error names.
const shownExamples = 5

// tally counts during the run.
type tally struct {
	mu       sync.Mutex
	sources  []SourceReport
	receipt  *hdrhistogram.Histogram // from the instant when it was due
	sending  *hdrhistogram.Histogram // from the instant when sending began
	examples []string
}

func newTally(m Model) *tally {
	t := &tally{
		receipt: hdrhistogram.New(1, histogramMax, histogramDigits),
		sending: hdrhistogram.New(1, histogramMax, histogramDigits),
	}
	for _, s := range m.Sources {
		t.sources = append(t.sources, SourceReport{Name: s.Name, Protocol: s.Protocol})
	}
	return t
}

// received notes how long a receipt took.
func (t *tally) received(sinceDue, sinceBegin time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	record(t.receipt, sinceDue)
	record(t.sending, sinceBegin)
}

// record cannot fail: the value lies within the histogram's range.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), histogramMax))
}

// add counts an object.
func (t *tally) add(source int, result sender.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.sources[source]
	s.Sent++
	s.Bytes += result.Bytes
	s.Repeated += int64(max(result.Tries-1, 0))
	switch result.Outcome {
	case sender.Received:
		s.Receipted++
		s.ReceiptedBytes += result.Bytes
		return
	case sender.Refused:
		if s.Refused == nil {
			s.Refused = map[wire.Cause]int64{}
		}
		s.Refused[result.Cause]++
	case sender.Unknown:
		s.Unknown++
	default:
		s.Sent--
		s.Unsent++
	}
	t.example(result.Name + ": " + result.Error)
}

// sent counts a datagram.
func (t *tally) sent(source int, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[source].Sent++
	t.sources[source].Bytes += size
}

// unsent counts a datagram that did not leave.
func (t *tally) unsent(source int, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[source].Unsent++
	t.example(why)
}

// lost counts a datagram that its host turned away.
func (t *tally) lost(source int, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[source].Lost++
	t.example(why)
}

// example keeps the first words about what went wrong.
func (t *tally) example(text string) {
	if len(t.examples) < shownExamples {
		t.examples = append(t.examples, text)
	}
}

// line is a line of progress.
func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := total(t.sources)
	text := fmt.Sprintf("sent %d, %s", sum.Sent, humanize.IBytes(uint64(sum.Bytes)))
	if sum.Receipted > 0 {
		text += fmt.Sprintf("; receipted %d, half of them within %v", sum.Receipted, micros(t.receipt.ValueAtQuantile(50)))
	}
	if n := sum.missing(); n > 0 {
		text += fmt.Sprintf("; %d failed", n)
	}
	return text
}
