// SPDX-License-Identifier: Apache-2.0

// Package sampling decides how often an instrument is to observe: what its
// Instrument declares, and where that lets consumers ask, the largest rate that
// one of them is allowed to ask for. It does no I/O and knows no time: who calls
// it gives the requests that have not lapsed.
package sampling

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Why a request does not count.
var (
	// ErrDenied: the Instrument lets no consumer ask.
	ErrDenied = errors.New("spec.sampling.consumerRequests of the Instrument is Deny")
	// ErrPaused: the channel is paused, and a consumer does not resume it.
	ErrPaused = errors.New("spec.sampling of the Instrument has the channel Paused")
	// ErrTooOften: more often than consumers may have it.
	ErrTooOften = errors.New("the interval is shorter than spec.sampling.minInterval of the Instrument")
	// ErrUnknownChannel: the Instrument has no such channel.
	ErrUnknownChannel = errors.New("the Instrument has no such channel")
)

// Asked is how often each channel is to be observed: the first entry is for all channels that are not named, the others are in the order
// of the Instrument, then of their names. Requests that are not allowed, see Allowed, are ignored; of equal requests that of the first
// consumer by name counts.
func Asked(e wire.InstrumentEntry, requests []wire.SamplingRequest) []wire.ChannelSampling {
	if e.Sampling == nil || len(e.Sampling.Channels) == 0 {
		return []wire.ChannelSampling{{State: wire.SamplingObserving}}
	}
	asked := slices.Clone(e.Sampling.Channels)
	requests = slices.SortedFunc(slices.Values(requests), func(a, b wire.SamplingRequest) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.IntervalMillis, b.IntervalMillis), cmp.Compare(a.Consumer, b.Consumer))
	})
	for _, r := range requests {
		if r.Instrument != e.Instrument || Allowed(e, r.Channel, time.Duration(r.IntervalMillis)*time.Millisecond) != nil {
			continue
		}
		i := slices.IndexFunc(asked, func(c wire.ChannelSampling) bool { return c.Channel == r.Channel })
		if i < 0 {
			if len(asked) == wire.MaxSamplingChannels {
				continue
			}
			i = len(asked)
			asked = append(asked, wire.ChannelSampling{Channel: r.Channel, State: asked[0].State, IntervalMillis: asked[0].IntervalMillis})
		}
		if r.IntervalMillis < asked[i].IntervalMillis {
			asked[i].IntervalMillis, asked[i].By = r.IntervalMillis, r.Consumer
		}
	}
	return asked
}

// Allowed says why a consumer may not ask for a channel, one of the Err that are
// declared here; nil where it may. Channel as in wire.ChannelSampling.
func Allowed(e wire.InstrumentEntry, channel string, interval time.Duration) error {
	s := e.Sampling
	if s == nil || len(s.Channels) == 0 || !s.ConsumersMayAsk {
		return ErrDenied
	}
	if !has(e, channel) {
		return ErrUnknownChannel
	}
	declared := Declared(e, channel)
	switch {
	case declared.State == wire.SamplingPaused:
		return ErrPaused
	case declared.IntervalMillis == 0: // the instrument's own interval is unknown, so a request cannot be compared with it
		return ErrDenied
	case interval < time.Duration(s.MinIntervalMillis)*time.Millisecond:
		return fmt.Errorf("%w: %v", ErrTooOften, time.Duration(s.MinIntervalMillis)*time.Millisecond)
	}
	return nil
}

// Declared is what the Instrument says of a channel. It must say something.
func Declared(e wire.InstrumentEntry, channel string) wire.ChannelSampling {
	return Of(e.Sampling.Channels, channel)
}

// Of is what holds for a channel, named or not.
func Of(all []wire.ChannelSampling, channel string) wire.ChannelSampling {
	if i := slices.IndexFunc(all, func(c wire.ChannelSampling) bool { return c.Channel == channel }); i >= 0 {
		return all[i]
	}
	return all[0]
}

// has says whether a channel is declared: by a listener, or by name.
func has(e wire.InstrumentEntry, channel string) bool {
	return slices.ContainsFunc(e.Sampling.Channels, func(c wire.ChannelSampling) bool { return c.Channel == channel }) ||
		slices.ContainsFunc(e.Listeners, func(w wire.ListenerEntry) bool { return w.Protocol == wire.ProtocolUDP && w.Channel == channel })
}
