// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

func sampleSampling() Sampling {
	return Sampling{Channels: []ChannelSampling{
		{State: SamplingObserving, IntervalMillis: 1000}, {Channel: "dark", State: SamplingPaused}, {Channel: "burst", State: SamplingObserving, IntervalMillis: 20},
	}}
}

// sampleSampled has what says how often it is to observe.
func sampleSampled() InstrumentEntry {
	e := sampleFramings()
	e.Listeners = e.Listeners[:1]
	e.Sampling = &SamplingEntry{Channels: sampleSampling().Channels, ConsumersMayAsk: true, MinIntervalMillis: 10}
	return e
}

func sampleRequest() SamplingRequest {
	return SamplingRequest{Instrument: "allsky-1", Channel: "burst", Consumer: "browser", IntervalMillis: 20, At: sampleTime}
}

func sampleLinkProbe() *LinkProbe {
	return &LinkProbe{To: "192.0.2.1:8862", Window: Span(5 * time.Minute), Sent: 300, Answered: 291, LostOut: 7, LostBack: 1, Delay: &LinkDelay{
		Min: Span(601 * time.Millisecond), Mean: Span(640 * time.Millisecond), P99: Span(1200 * time.Millisecond), Max: Span(1400 * time.Millisecond),
		JitterOut: Span(12 * time.Millisecond), JitterBack: Span(3 * time.Millisecond),
	}}
}

func sampleHeartbeatObeying() Heartbeat {
	h := sampleHeartbeatOfOne()
	h.Commands = []string{CommandSampling}
	h.Sampling = &SamplingReport{
		Obeys:    []ChannelSampling{{State: SamplingObserving, IntervalMillis: 2000}},
		Achieved: []AchievedSampling{{Interval: Span(2013 * time.Millisecond)}},
		Problem:  "--sample-command: exit status 1",
	}
	h.LinkProbe = sampleLinkProbe()
	return h
}

func sampleInstrumentAchieving() InstrumentStatus {
	s := sampleInstrumentStatus()
	s.Achieved = []AchievedSampling{{Channel: "raw", Interval: Span(201 * time.Millisecond)}}
	return s
}

func sampleSenderObeying() SenderStatus {
	s := sampleHeartbeatObeying().StatusAt(sampleTime, "gateway-0")
	s.Asked = sampleSampling().Channels
	s.Asked[2].By = "browser"
	return s
}
