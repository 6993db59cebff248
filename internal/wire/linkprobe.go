// SPDX-License-Identifier: Apache-2.0

package wire

// MaxLinkProbeAddress is the greatest length of LinkProbe.To in bytes.
const MaxLinkProbeAddress = 300

// LinkProbe is how packets fare between a sender and a gateway, as the sender measured
// it with STAMP (RFC 8762) over the last Window.
type LinkProbe struct {
	// To is the address that answers, host:port.
	To     string `json:"to"`
	Window Span   `json:"window"`
	// Sent packets, and how many of them were answered. Packets in between that may still be answered are not counted.
	Sent     int64 `json:"sent"`
	Answered int64 `json:"answered"`
	// LostOut did not reach the gateway; for LostBack the answer did not reach the sender. It is unknown where the others were lost.
	LostOut  int64 `json:"lostOut,omitempty"`
	LostBack int64 `json:"lostBack,omitempty"`
	// Delay is nil if nothing was answered.
	Delay *LinkDelay `json:"delay,omitempty"`
}

// LinkDelay is how long packets took there and back, without the time that the
// gateway took to answer.
type LinkDelay struct {
	Min  Span `json:"min"`
	Mean Span `json:"mean"`
	P99  Span `json:"p99"`
	Max  Span `json:"max"`
	// JitterOut to the gateway and JitterBack from it, as RFC 3550, section 6.4.1.
	JitterOut  Span `json:"jitterOut"`
	JitterBack Span `json:"jitterBack"`
}

// Lost is how many packets were not answered.
func (p LinkProbe) Lost() int64 { return p.Sent - p.Answered }

func (p *LinkProbe) valid() bool {
	if p == nil {
		return true
	}
	if d := p.Delay; d != nil && (d.Min < 0 || d.Mean < d.Min || d.P99 < d.Min || d.Max < d.Mean || d.Max < d.P99 || d.JitterOut < 0 || d.JitterBack < 0) {
		return false
	}
	return len(p.To) <= MaxLinkProbeAddress && p.Window >= 0 && p.Answered >= 0 && p.Sent >= p.Answered &&
		p.LostOut >= 0 && p.LostBack >= 0 && p.LostOut <= p.Lost() && p.LostBack <= p.Lost()-p.LostOut
}

// worse says whether a link is worse than another: more is lost, or it is slower.
func (p *LinkProbe) worse(than *LinkProbe) bool {
	if p == nil || than == nil {
		return p != nil
	}
	if a, b := p.lossRatio(), than.lossRatio(); a != b {
		return a > b
	}
	return p.mean() > than.mean()
}

func (p *LinkProbe) lossRatio() float64 { return float64(p.Lost()) / float64(max(1, p.Sent)) }

func (p *LinkProbe) mean() Span {
	if p.Delay == nil {
		return 0
	}
	return p.Delay.Mean
}
