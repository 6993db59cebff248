// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"slices"
	"time"
)

const (
	// Window is how long back a Report looks.
	Window = 5 * time.Minute
	// Patience is how long an answer may take; then it, or the packet, counts as lost.
	Patience = 5 * time.Second
	// maxKept bounds the packets that are remembered: Window at MinInterval.
	maxKept = int(Window / MinInterval)
)

// Tracker makes figures of packets and their answers. It does no I/O and takes the
// time as an argument; it is not safe for concurrent use.
//
// Which way a packet was lost is known from the reflector's own count: where that
// went on by one and ours by two, a packet did not reach it. Which of two
// neighbors that was does not matter.
type Tracker struct {
	// sent packets in order; the last one is the one with number next-1.
	sent []packet
	next uint32

	// answered: there is a newest answer, to our packet number newest, with the
	// reflector's count.
	answered      bool
	newest, count uint32
	// first is the number of the first packet that the reflector may have counted.
	first uint32

	jitterOut, jitterBack jitter
}

// fate is what became of a packet.
type fate uint8

const (
	pending fate = iota
	arrived
	lostOut
	lostBack
	lost // which way is not known
)

type packet struct {
	at        time.Time
	fate      fate
	roundTrip time.Duration
}

// jitter is RFC 3550's, section 6.4.1: J += (|D| - J) / 16.
type jitter struct {
	transit time.Duration
	known   bool
	value   time.Duration
}

func (j *jitter) add(transit time.Duration) {
	if j.known {
		j.value += ((transit - j.transit).Abs() - j.value) / 16
	}
	j.transit, j.known = transit, true
}

// Sent counts a packet that leaves now, and returns its number.
func (t *Tracker) Sent(now time.Time) uint32 {
	old := 0
	for old < len(t.sent) && (now.Sub(t.sent[old].at) > Window || len(t.sent)-old >= maxKept) {
		old++
	}
	t.sent = append(slices.Delete(t.sent, 0, old), packet{at: now})
	t.next++
	return t.next - 1
}

// Begin says that the packets that follow go to a reflector that counts from 0, and
// that no answer to an earlier one comes any more.
func (t *Tracker) Begin() {
	t.answered, t.first = false, t.next
	t.jitterOut.known, t.jitterBack.known = false, false
	for i := range t.sent {
		if t.sent[i].fate == pending {
			t.sent[i].fate = lost
		}
	}
}

// find returns the packet of a number, nil where it is forgotten or was never sent.
func (t *Tracker) find(n uint32) *packet {
	back := t.next - n // from 1
	if back == 0 || int64(back) > int64(len(t.sent)) {
		return nil
	}
	return &t.sent[len(t.sent)-int(back)]
}

// Answered takes an answer that came now. It returns false for one that answers no
// packet of ours, or one that was answered before.
func (t *Tracker) Answered(r Reply, now time.Time) bool {
	p := t.find(r.Request.Sequence)
	if p == nil || p.fate == arrived {
		return false
	}
	before := p.fate
	p.roundTrip = max(0, now.Sub(p.at)-max(0, r.Sent.Sub(r.Received)))
	p.fate = arrived
	if t.answered && int32(r.Request.Sequence-t.newest) < 0 {
		t.late(r, before)
		return true
	}
	t.judgeSkipped(r)
	t.jitterOut.add(r.Received.Sub(r.Request.Sent))
	t.jitterBack.add(TimestampOf(now).Sub(r.Sent))
	return true
}

// judgeSkipped says of the packets between the newest answer and this one what became of
// them.
func (t *Tracker) judgeSkipped(r Reply) {
	from, counted := t.newest, int64(int32(r.Sequence-t.count))
	known := t.answered && counted > 0 // otherwise the reflector's count restarted
	if !t.answered {
		// It counts from 0: as many of those before this one as its count says came to it.
		from, counted, known = t.first-1, int64(r.Sequence)+1, true
	}
	missing := int64(r.Request.Sequence-from) - 1
	back := min(max(0, counted-1), missing)
	for n := from + 1; n != r.Request.Sequence; n++ {
		p := t.find(n)
		switch {
		case p == nil:
			back = max(0, back-1)
		case p.fate == arrived:
		case !known:
			p.fate = lost
		case back > 0:
			p.fate = lostBack
			back--
		default:
			p.fate = lostOut
		}
	}
	t.answered, t.newest, t.count = true, r.Request.Sequence, r.Sequence
}

// late takes an answer that others overtook: on its way here where the reflector
// counted it before them, on the way there else. Its packet was taken for one that
// was lost; where that was the other way, another one bears that mark by mistake.
func (t *Tracker) late(r Reply, before fate) {
	really := lostBack
	if ahead := int32(r.Sequence - t.count); ahead > 0 {
		really = lostOut
		t.count = r.Sequence
	}
	if before != lostOut && before != lostBack || before == really {
		return
	}
	for n := t.newest; ; n-- {
		p := t.find(n)
		if p == nil {
			return
		}
		if p.fate == really {
			p.fate = before
			return
		}
	}
}

// Report says how a path was within the last Window.
type Report struct {
	Window time.Duration
	// Sent packets that are answered or lost.
	Sent, Answered int
	// LostOut did not arrive at the reflector; for LostBack the answer did not arrive here. It is unknown where the rest was lost.
	LostOut, LostBack int
	// The round trip, without the time that the reflector took; 0 if nothing was answered.
	Min, Mean, P99, Max time.Duration
	// JitterOut and JitterBack are of each way, as RFC 3550 has it.
	JitterOut, JitterBack time.Duration
}

// Report sums up. Packets that were sent within Patience and are not answered are left out.
func (t *Tracker) Report(now time.Time) Report {
	r := Report{JitterOut: t.jitterOut.value, JitterBack: t.jitterBack.value}
	var trips []time.Duration
	var sum time.Duration
	for i := range t.sent {
		p := &t.sent[i]
		age := now.Sub(p.at)
		if age > Window || p.fate != arrived && age < Patience {
			continue
		}
		if r.Sent == 0 {
			r.Window = age
		}
		r.Sent++
		switch p.fate {
		case arrived:
			trips = append(trips, p.roundTrip)
			sum += p.roundTrip
		case lostOut:
			r.LostOut++
		case lostBack:
			r.LostBack++
		}
	}
	if r.Answered = len(trips); r.Answered == 0 {
		return r
	}
	slices.Sort(trips)
	r.Min, r.Max, r.Mean = trips[0], trips[len(trips)-1], sum/time.Duration(len(trips))
	r.P99 = trips[(99*len(trips)+99)/100-1]
	return r
}
