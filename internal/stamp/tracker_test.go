// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A path in a test: packets go out and answers come back as a script says.
type path struct {
	t       *testing.T
	tracker Tracker
	now     time.Time
	count   uint32 // of the reflector
	// skew is how far the reflector's clock is ahead.
	skew time.Duration
}

func newPath(t *testing.T) *path { return &path{t: t, now: noon} }

// send sends a packet, a second after the last one.
func (p *path) send() uint32 {
	p.now = p.now.Add(time.Second)
	return p.tracker.Sent(p.now)
}

// reflect is the answer to a packet that left at sent and took out to the reflector,
// which takes 7 ms.
func (p *path) reflect(n uint32, sent time.Time, out time.Duration) Reply {
	received := sent.Add(out + p.skew)
	r := Reply{Sequence: p.count, Received: TimestampOf(received), Sent: TimestampOf(received.Add(7 * time.Millisecond)),
		Request: Request{Sequence: n, Sent: TimestampOf(sent)}}
	p.count++
	return r
}

func (p *path) answer(r Reply, at time.Time) {
	p.t.Helper()
	if !p.tracker.Answered(r, at) {
		p.t.Errorf("the answer to packet %d does not count", r.Request.Sequence)
	}
}

// exchange sends a packet that is answered after out, 7 ms and back.
func (p *path) exchange(out, back time.Duration) {
	p.t.Helper()
	n := p.send()
	p.answer(p.reflect(n, p.now, out), p.now.Add(out+back+7*time.Millisecond))
}

// report looks once all that can come has come.
func (p *path) report() Report { return p.tracker.Report(p.now.Add(Patience)) }

func (p *path) want(sent, answered, out, back int) {
	p.t.Helper()
	if r := p.report(); r.Sent != sent || r.Answered != answered || r.LostOut != out || r.LostBack != back {
		p.t.Errorf("%d sent, %d answered, %d lost out, %d back; want %d, %d, %d, %d", r.Sent, r.Answered, r.LostOut, r.LostBack, sent, answered, out, back)
	}
}

func TestDelays(t *testing.T) {
	p := newPath(t)
	p.skew = -time.Hour
	for i := range 100 {
		p.exchange(time.Duration(10+i)*time.Millisecond, 5*time.Millisecond)
	}
	got := p.report()
	want := Report{Window: 99*time.Second + Patience, Sent: 100, Answered: 100, Min: 15 * time.Millisecond, Mean: 64500 * time.Microsecond,
		P99: 113 * time.Millisecond, Max: 114 * time.Millisecond, JitterOut: got.JitterOut, JitterBack: got.JitterBack}
	for _, d := range []*time.Duration{&got.Min, &got.Mean, &got.P99, &got.Max} {
		*d = d.Round(time.Microsecond)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// |D| is 1 ms each time on the way out, and nothing on the way back: after n of them
	// J = 1 ms (1 - (15/16)^n).
	if got.JitterOut < 995*time.Microsecond || got.JitterOut > time.Millisecond || got.JitterBack > time.Microsecond {
		t.Errorf("jitter %v out, %v back", got.JitterOut, got.JitterBack)
	}
}

func TestLosses(t *testing.T) {
	p := newPath(t)
	p.want(0, 0, 0, 0)
	p.send() // does not come to the reflector
	p.now = p.now.Add(time.Second)
	p.reflect(p.tracker.Sent(p.now), p.now, 0) // its answer is lost
	p.exchange(time.Millisecond, time.Millisecond)
	p.want(3, 1, 1, 1)
	for range 2 {
		p.send()
	}
	for range 3 {
		p.reflect(p.send(), p.now, 0)
	}
	p.exchange(time.Millisecond, time.Millisecond)
	p.want(9, 2, 3, 4)
	p.send()
	p.send() // their fate is not known yet
	p.want(11, 2, 3, 4)
	// The last four without an answer might still get one.
	if r := p.tracker.Report(p.now); r.Sent != 7 || r.Answered != 2 {
		t.Errorf("%d are counted before they can have been answered, want 7", r.Sent)
	}
}

// Packets that overtake others on their way are not lost, whichever way that was.
func TestOvertaking(t *testing.T) {
	for name, overtaken := range map[string]func(p *path) (early, late Reply){
		"on the way there": func(p *path) (early, late Reply) {
			first := p.send()
			second := p.send()
			early = p.reflect(second, p.now, 0)
			return early, p.reflect(first, p.now, 0)
		},
		"on the way back": func(p *path) (early, late Reply) {
			late = p.reflect(p.send(), p.now, 0)
			return p.reflect(p.send(), p.now, 0), late
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPath(t)
			p.exchange(time.Millisecond, time.Millisecond)
			early, late := overtaken(p)
			p.answer(early, p.now)
			p.answer(late, p.now)
			p.exchange(time.Millisecond, time.Millisecond)
			p.want(4, 4, 0, 0)
			if p.tracker.Answered(late, p.now) {
				t.Error("an answer counts twice")
			}
		})
	}
}

// A late answer may show that another packet was lost than the one that was taken for it.
func TestOvertakingAmidLosses(t *testing.T) {
	p := newPath(t)
	p.exchange(0, 0)
	late := p.reflect(p.send(), p.now, 0)
	p.reflect(p.send(), p.now, 0) // its answer is lost
	p.send()                      // does not come to the reflector
	p.exchange(0, 0)
	p.want(5, 2, 1, 2)
	p.answer(late, p.now)
	p.want(5, 3, 1, 1)
}

// The reflector's count restarts, as after a restart of its process: it is unknown where packets were lost meanwhile.
func TestReflectorCountsAnew(t *testing.T) {
	p := newPath(t)
	for range 10 {
		p.exchange(0, 0)
	}
	p.send()
	p.count = 0
	p.exchange(0, 0)
	p.want(12, 11, 0, 0)
	p.send()
	p.exchange(0, 0)
	p.want(14, 12, 1, 0)
}

func TestNewSession(t *testing.T) {
	p := newPath(t)
	p.exchange(0, 0)
	p.send()
	p.tracker.Begin()
	p.count = 0
	p.send() // does not come to the reflector
	p.exchange(0, 0)
	p.want(4, 2, 1, 0)
	if p.tracker.Answered(Reply{Request: Request{Sequence: 99}}, p.now) {
		t.Error("an answer to a packet that was never sent counts")
	}
}

// Only the last minutes count.
func TestWindow(t *testing.T) {
	p := newPath(t)
	for range 10 {
		p.send()
	}
	for range int(Window/time.Second) + 10 {
		p.exchange(0, 0)
	}
	if r := p.report(); r.Sent != r.Answered || r.Sent > int(Window/time.Second) || r.Window > Window {
		t.Errorf("%+v", r)
	}
	if n := len(p.tracker.sent); n > int(Window/time.Second)+1 {
		t.Errorf("%d packets are kept", n)
	}
	for range 2 * maxKept {
		p.now = p.now.Add(time.Microsecond)
		p.tracker.Sent(p.now)
	}
	if n := len(p.tracker.sent); n > maxKept {
		t.Errorf("%d packets are kept", n)
	}
}

// On any path without overtaking, each packet counts once, and each loss where it
// was: those before the last answer, that is.
func TestAnyPath(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newPath(t)
		lossOut, lossBack := r.Float64(), r.Float64()
		var sent, answered, out, back int // up to the last answer
		var unknown, unknownOut, unknownBack int
		for range 200 {
			n := p.send()
			unknown++
			if r.Float64() < lossOut {
				unknownOut++
				continue
			}
			reply := p.reflect(n, p.now, time.Millisecond)
			if r.Float64() < lossBack {
				unknownBack++
				continue
			}
			p.answer(reply, p.now.Add(3*time.Millisecond))
			answered++
			sent, out, back = sent+unknown, out+unknownOut, back+unknownBack
			unknown, unknownOut, unknownBack = 0, 0, 0
		}
		p.want(sent+unknown, answered, out, back)
	}
}
