// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMergeSenders(t *testing.T) {
	at := func(minutes int) time.Time { return sampleTime.Add(time.Duration(minutes) * time.Minute) }
	one := SenderStatus{Sender: "one", Gateway: "g-0", ReportedAt: at(0), ClockOffset: ptr(Span(-3 * time.Second)), RoundTrip: ptr(Span(time.Second)),
		QueueObjects: 5, QueueBytes: 500, Oldest: ptr(at(-50)), SetAside: 1, Version: "v1"}
	two := SenderStatus{Sender: "two", Gateway: "g-1", ReportedAt: at(2), ClockOffset: ptr(Span(time.Second)),
		QueueObjects: 7, QueueBytes: 70, Oldest: ptr(at(-5)), SetAside: 2, Version: "v2"}
	earlier := two
	earlier.ReportedAt, earlier.Gateway, earlier.QueueObjects, earlier.ClockOffset = at(1), "g-0", 1000, ptr(Span(time.Hour))
	silent := SenderStatus{Sender: "three", Gateway: "g-0", ReportedAt: at(1)}
	want := SenderStatus{Gateway: "g-1", ReportedAt: at(2), ClockOffset: one.ClockOffset, RoundTrip: one.RoundTrip,
		QueueObjects: 12, QueueBytes: 570, Oldest: ptr(at(-50)), SetAside: 3, Version: "v2"}
	if diff := cmp.Diff(want, MergeSenders([]SenderStatus{earlier, one, silent, two})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(two, MergeSenders([]SenderStatus{two, earlier})); diff != "" {
		t.Errorf("of one: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(SenderStatus{}, MergeSenders(nil)); diff != "" {
		t.Errorf("of none: %s", diff)
	}
}

// The last sender that takes commands decides what was asked; the worst path counts.
func TestMergeSendersObeying(t *testing.T) {
	quick := sampleSenderObeying()
	quick.Sender, quick.ReportedAt, quick.LinkProbe = "quick", sampleTime.Add(time.Minute), &LinkProbe{Sent: 10, Answered: 10, Delay: &LinkDelay{Mean: 5}}
	quick.Asked = []ChannelSampling{{State: SamplingObserving, IntervalMillis: 5}}
	lossy := sampleSenderObeying()
	plain := SenderStatus{Sender: "plain", ReportedAt: sampleTime.Add(time.Hour)}
	sum := MergeSenders([]SenderStatus{lossy, plain, quick})
	if diff := cmp.Diff(quick.Asked, sum.Asked); diff != "" {
		t.Errorf("asked: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(quick.Sampling, sum.Sampling); diff != "" {
		t.Errorf("sampling: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(lossy.LinkProbe, sum.LinkProbe); diff != "" {
		t.Errorf("path: -want +got\n%s", diff)
	}
	slow := quick
	slow.Sender, slow.LinkProbe = "slow", &LinkProbe{Sent: 20, Answered: 20, Delay: &LinkDelay{Mean: 6}}
	if got := MergeSenders([]SenderStatus{quick, slow, plain}).LinkProbe; got != slow.LinkProbe {
		t.Errorf("of two without loss: %+v", got)
	}
}

func TestSenderNames(t *testing.T) {
	for name, good := range map[string]bool{
		"": true, "3f9a0c55e1d2b764": true, strings.Repeat("x", MaxSender): true,
		strings.Repeat("x", MaxSender+1): false, "two words": false, "line\n": false, "Ä": false,
	} {
		frame, err := Heartbeat{Sender: name, SentAt: sampleTime}.Frame()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode[Heartbeat](frame[PrefixSize:]); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	if i, g, ok := ParseSenderStatusKey(SenderStatusKey("camera", "north-0")); i != "camera" || g != "north-0" || !ok {
		t.Errorf("%q, %q, %v", i, g, ok)
	}
	for _, key := range []string{"sender.camera", "sender.camera.", "sender..north-0", "camera.north-0", "forward.camera"} {
		if i, g, ok := ParseSenderStatusKey(key); ok {
			t.Errorf("%s is read as %q, %q", key, i, g)
		}
	}
}
