// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseSampling(t *testing.T) {
	var many []string
	for i := range MaxSamplingChannels {
		many = append(many, fmt.Sprintf(`{"channel":"c-%d","state":"Observing"}`, i))
	}
	for name, body := range map[string]string{
		"no channels":         `{"format":1}`,
		"first has a name":    `{"format":1,"channels":[{"channel":"x","state":"Observing"}]}`,
		"a channel twice":     `{"format":1,"channels":[{"state":"Observing"},{"channel":"x","state":"Observing"},{"channel":"x","state":"Paused"}]}`,
		"unknown state":       `{"format":1,"channels":[{"state":"on"}]}`,
		"negative interval":   `{"format":1,"channels":[{"state":"Observing","intervalMillis":-1}]}`,
		"interval of an age":  `{"format":1,"channels":[{"state":"Observing","intervalMillis":99999999999}]}`,
		"name for a shell":    `{"format":1,"channels":[{"state":"Observing"},{"channel":"$(halt)","state":"Observing"}]}`,
		"more than there are": `{"format":1,"channels":[{"state":"Observing"},` + strings.Join(many, ",") + `]}`,
	} {
		if s, err := ParseSampling("command sampling " + body + "\n"); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if _, err := ParseSampling("command focus {}\n"); !errors.Is(err, ErrMalformed) {
		t.Errorf("another command: %v", err)
	}
	if kind, body, ok := ParseCommand("command focus 12 mm\n"); kind != "focus" || body != "12 mm" || !ok {
		t.Errorf("%q, %q, %v", kind, body, ok)
	}
	if _, _, ok := ParseCommand("commanded sampling {}\n"); ok {
		t.Error("what is no command passes for one")
	}
}

// The longest command there can be fits its line, and the answer its frame.
func TestLongestSampling(t *testing.T) {
	var s Sampling
	for i := range MaxSamplingChannels {
		c := ChannelSampling{State: SamplingPaused, IntervalMillis: MaxSamplingInterval.Milliseconds()}
		if i > 0 {
			c.Channel = fmt.Sprintf("%s%02d", strings.Repeat("x", maxChannel-2), i)
		}
		s.Channels = append(s.Channels, c)
	}
	line, err := s.Line()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseSampling(line); err != nil {
		t.Error(err)
	}
	h := sampleHeartbeatObeying()
	h.Sampling = &SamplingReport{Obeys: s.Channels, Achieved: []AchievedSampling{{Interval: Span(time.Hour + time.Nanosecond)}}, Problem: strings.Repeat("x", MaxProblem)}
	if _, err := h.Frame(); err != nil {
		t.Error(err)
	}
}

func TestHeartbeatMustMakeSense(t *testing.T) {
	for name, change := range map[string]func(*Heartbeat){
		"more answers than packets": func(h *Heartbeat) { h.LinkProbe.Answered = h.LinkProbe.Sent + 1 },
		"more losses than packets":  func(h *Heartbeat) { h.LinkProbe.LostOut = h.LinkProbe.Lost() + 1 },
		"negative loss":             func(h *Heartbeat) { h.LinkProbe.LostBack = -1 },
		"mean beyond the greatest":  func(h *Heartbeat) { h.LinkProbe.Delay.Mean = h.LinkProbe.Delay.Max + 1 },
		"negative delay":            func(h *Heartbeat) { h.LinkProbe.Delay.Min = -1 },
		"long address":              func(h *Heartbeat) { h.LinkProbe.To = strings.Repeat("x", MaxLinkProbeAddress+1) },
		"a state that is none":      func(h *Heartbeat) { h.Sampling.Obeys[0].State = "" },
		"negative interval":         func(h *Heartbeat) { h.Sampling.Achieved[0].Interval = -1 },
		"long problem":              func(h *Heartbeat) { h.Sampling.Problem = strings.Repeat("x", MaxProblem+1) },
	} {
		h := sampleHeartbeatObeying()
		change(&h)
		frame, err := h.Frame()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode[Heartbeat](frame[PrefixSize:]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}
