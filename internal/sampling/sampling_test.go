// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func on(channel string, millis int64, by string) wire.ChannelSampling {
	return wire.ChannelSampling{Channel: channel, State: wire.SamplingObserving, IntervalMillis: millis, By: by}
}

func off(channel string) wire.ChannelSampling {
	return wire.ChannelSampling{Channel: channel, State: wire.SamplingPaused}
}

// entry is an instrument with a channel "raw" observed every ten seconds; consumers may ask for up to ten observations a second; "dark"
// is off.
func entry(change func(*wire.SamplingEntry)) wire.InstrumentEntry {
	s := &wire.SamplingEntry{Channels: []wire.ChannelSampling{on("", 10_000, ""), on("slow", 60_000, ""), off("dark")}, ConsumersMayAsk: true, MinIntervalMillis: 100}
	if change != nil {
		change(s)
	}
	return wire.InstrumentEntry{Instrument: "mag", Sampling: s, Listeners: []wire.ListenerEntry{
		{Protocol: wire.ProtocolUDP, Channel: "raw"}, {Protocol: wire.ProtocolTCP},
	}}
}

func request(consumer, channel string, millis int64) wire.SamplingRequest {
	return wire.SamplingRequest{Instrument: "mag", Consumer: consumer, Channel: channel, IntervalMillis: millis}
}

func TestAsked(t *testing.T) {
	declared := entry(nil).Sampling.Channels
	with := func(at int, c wire.ChannelSampling) []wire.ChannelSampling {
		all := append([]wire.ChannelSampling(nil), declared...)
		if at == len(all) {
			return append(all, c)
		}
		all[at] = c
		return all
	}
	other := request("other", "", 200)
	other.Instrument = "camera"
	for _, c := range []struct {
		name     string
		entry    wire.InstrumentEntry
		requests []wire.SamplingRequest
		want     []wire.ChannelSampling
	}{
		{"nothing is declared", wire.InstrumentEntry{Instrument: "mag"}, []wire.SamplingRequest{request("a", "", 200)}, []wire.ChannelSampling{on("", 0, "")}},
		{"nobody asks", entry(nil), nil, declared},
		{"one asks for more", entry(nil), []wire.SamplingRequest{request("a", "", 200)}, with(0, on("", 200, "a"))},
		{"one asks for less", entry(nil), []wire.SamplingRequest{request("a", "", 20_000)}, declared},
		{"one asks for as much", entry(nil), []wire.SamplingRequest{request("a", "", 10_000)}, declared},
		{"the largest wins", entry(nil), []wire.SamplingRequest{request("a", "slow", 2000), request("c", "slow", 1000), request("b", "slow", 3000)}, with(1, on("slow", 1000, "c"))},
		{"of equals the first by name", entry(nil), []wire.SamplingRequest{request("b", "slow", 1000), request("a", "slow", 1000)}, with(1, on("slow", 1000, "a"))},
		{"a channel of a listener", entry(nil), []wire.SamplingRequest{request("a", "raw", 500)}, with(3, on("raw", 500, "a"))},
		{"the largest that is allowed", entry(nil), []wire.SamplingRequest{request("a", "", 99), request("b", "", 100)}, with(0, on("", 100, "b"))},
		{"off stays off", entry(nil), []wire.SamplingRequest{request("a", "dark", 1000)}, declared},
		{"no such channel", entry(nil), []wire.SamplingRequest{request("a", "light", 1000)}, declared},
		{"another instrument", entry(nil), []wire.SamplingRequest{other}, declared},
		{"denied", entry(func(s *wire.SamplingEntry) { s.ConsumersMayAsk = false }), []wire.SamplingRequest{request("a", "", 200)}, declared},
		{"without an interval there is no more", entry(func(s *wire.SamplingEntry) { s.Channels = []wire.ChannelSampling{on("", 0, "")} }),
			[]wire.SamplingRequest{request("a", "", 200)}, []wire.ChannelSampling{on("", 0, "")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Asked(c.entry, c.requests)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(declared, entry(nil).Sampling.Channels); diff != "" {
				t.Errorf("the entry was changed:\n%s", diff)
			}
		})
	}
}

// The result fits in a command, however much is asked for.
func TestAskedFitsACommand(t *testing.T) {
	e := entry(nil)
	var requests []wire.SamplingRequest
	for i := range 100 {
		channel := fmt.Sprint("c-", i)
		e.Listeners = append(e.Listeners, wire.ListenerEntry{Protocol: wire.ProtocolUDP, Channel: channel})
		requests = append(requests, request("a", channel, 100))
	}
	line, err := wire.Sampling{Channels: Asked(e, requests)}.Line()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ParseSampling(line); err != nil {
		t.Error(err)
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		channel  string
		interval time.Duration
		want     error
	}{
		{"", time.Second, nil}, {"raw", 100 * time.Millisecond, nil}, {"raw", 99 * time.Millisecond, ErrTooOften},
		{"dark", time.Hour, ErrPaused}, {"light", time.Hour, ErrUnknownChannel},
	} {
		if err := Allowed(entry(nil), c.channel, c.interval); !errors.Is(err, c.want) {
			t.Errorf("%q each %v: %v, want %v", c.channel, c.interval, err, c.want)
		}
	}
	if err := Allowed(wire.InstrumentEntry{}, "", time.Hour); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	if err := Allowed(entry(func(s *wire.SamplingEntry) { s.ConsumersMayAsk = false }), "dark", time.Hour); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
}
