// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/progress"
)

// tally counts while we send.
type tally struct {
	begin time.Time
	noun  string // what is sent: objects or datagrams
	udp   bool

	// known objects and bytes, once counted; 0 before, and for standard input.
	known, knownBytes atomic.Int64
	// onWire are bytes that the kernel took, including failed tries.
	onWire  atomic.Int64
	useful  atomic.Int64 // those that need not be sent again
	done    atomic.Int64 // objects received, or datagrams sent
	bytes   atomic.Int64 // of these
	repeats atomic.Int64 // tries after the first
	blank   atomic.Int64 // empty lines passed over

	mu     sync.Mutex
	failed []Result // the first ones
	counts map[Outcome]int64
}

// shownFailures is how many failures the summary names.
const shownFailures = 10

func newTally(udp bool) *tally {
	t := &tally{begin: time.Now(), udp: udp, noun: "objects", counts: map[Outcome]int64{}}
	if udp {
		t.noun = "datagrams"
	}
	return t
}

func (t *tally) addSent(n int64)      { t.onWire.Add(n); t.useful.Add(n) }
func (t *tally) subtractLost(n int64) { t.useful.Add(-n) }

func (t *tally) add(r Result) {
	if r.ok() {
		t.bytes.Add(r.Bytes)
		t.done.Add(1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[r.Outcome]++
	if !r.ok() && len(t.failed) < shownFailures {
		t.failed = append(t.failed, r)
	}
}

// count returns how many ended so.
func (t *tally) count(o Outcome) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[o]
}

// missing is how many ended without being received.
func (t *tally) missing() int64 { return t.count(Refused) + t.count(Unknown) + t.count(Unsent) }

// verb says what happened to what is done.
func (t *tally) verb() string {
	if t.udp {
		return "sent"
	}
	return "received"
}

// String is a line of progress: received 12 of 500 objects, 34 MiB (2.1 MiB/s), 3 tried again.
func (t *tally) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %d", t.verb(), t.done.Load())
	if known := t.known.Load(); known > 0 {
		fmt.Fprintf(&out, " of %d", known)
	}
	fmt.Fprintf(&out, " %s, %s", t.noun, humanize.IBytes(uint64(t.bytes.Load())))
	if seconds := time.Since(t.begin).Seconds(); seconds > 0 {
		fmt.Fprintf(&out, " (%s/s)", humanize.IBytes(uint64(float64(t.onWire.Load())/seconds)))
	}
	if n := t.repeats.Load(); n > 0 {
		fmt.Fprintf(&out, ", %d tried again", n)
	}
	if n := t.missing(); n > 0 {
		fmt.Fprintf(&out, ", %d given up", n)
	}
	return out.String()
}

// state is the progress, in bytes. While objects are retried and none was received, it has no estimate of the time left.
func (t *tally) state() progress.State {
	if t.done.Load() == 0 && t.repeats.Load() > 0 {
		return progress.State{Text: t.String()}
	}
	return progress.State{Done: t.useful.Load(), Total: t.knownBytes.Load(), Text: t.String()}
}

// summary is what is said at the end.
func (t *tally) summary() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %d %s, %s, in %v", t.verb(), t.done.Load(), t.noun,
		humanize.IBytes(uint64(t.bytes.Load())), time.Since(t.begin).Round(10*time.Millisecond))
	if n := t.repeats.Load(); n > 0 {
		fmt.Fprintf(&out, "; %d tries had to be repeated", n)
	}
	if n := t.blank.Load(); n > 0 {
		fmt.Fprintf(&out, "; %d empty lines passed over", n)
	}
	if t.udp {
		out.WriteString("\nUDP has no receipt: the archive's ledger shows whether they arrived")
	}
	return out.String()
}

// explain names the first objects that were not received, and why.
func (t *tally) explain() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	for _, r := range t.failed {
		fmt.Fprintf(&out, "\n  %s: ", r.Name)
		if r.Outcome == Unknown {
			out.WriteString("sent, but without a receipt; it may be stored, sending it again does no harm: ")
		}
		out.WriteString(r.Error)
		if r.Server != "" {
			fmt.Fprintf(&out, " (%s)", r.Server)
		}
	}
	return out.String()
}

// troubles says each trouble once in a while, however often it comes.
type troubles struct {
	show func(text string)
	mu   sync.Mutex
	said map[string]time.Time
}

const troubleInterval = 30 * time.Second

// say shows text unless a text of the same kind was shown lately.
func (t *troubles) say(kind, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.said[kind]; ok && time.Since(last) < troubleInterval {
		return
	}
	if t.said == nil || len(t.said) > 1000 {
		t.said = map[string]time.Time{}
	}
	t.said[kind] = time.Now()
	t.show(text)
}
