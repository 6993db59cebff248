// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// The states of a channel, spelled as in the Instrument.
const (
	SamplingObserving = "Observing"
	SamplingPaused    = "Paused"
)

const (
	// CommandSampling is the type of the command that says how often an instrument
	// is to observe, and stands in Heartbeat.Commands of who takes it.
	CommandSampling = "sampling"
	// MaxCommandLine is the greatest length of a command in bytes, LF included.
	MaxCommandLine = 8 << 10
	// MaxSamplingChannels bounds the channels of a command.
	MaxSamplingChannels = 16
	// MaxSamplingInterval is the greatest interval of a channel.
	MaxSamplingInterval = 366 * 24 * time.Hour
	// MaxProblem is the greatest length of SamplingReport.Problem in bytes.
	MaxProblem = 200

	commandWord = "command "
	maxChannel  = 63
)

// ChannelSampling says how often a channel is to be observed.
type ChannelSampling struct {
	// Channel is a DNS label; empty: every channel that is not named beside it.
	Channel string `json:"channel,omitempty"`
	// State is SamplingObserving or SamplingPaused.
	State string `json:"state"`
	// IntervalMillis between observations; 0: as the instrument itself does.
	IntervalMillis int64 `json:"intervalMillis,omitempty"`
	// By is the consumer that asked for the interval; empty: the Instrument declares it.
	By string `json:"by,omitempty"`
}

// Interval between observations; 0: as the instrument itself does.
func (c ChannelSampling) Interval() time.Duration {
	return time.Duration(c.IntervalMillis) * time.Millisecond
}

var channelName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

func (c ChannelSampling) valid() bool {
	return (c.Channel == "" || len(c.Channel) <= maxChannel && channelName.MatchString(c.Channel)) &&
		(c.State == SamplingObserving || c.State == SamplingPaused) &&
		c.IntervalMillis >= 0 && c.IntervalMillis <= MaxSamplingInterval.Milliseconds() && len(c.By) <= maxChannel
}

// UnmarshalJSON reads the states also as they were spelled before: On and Off, which are
// booleans to YAML.
func (c *ChannelSampling) UnmarshalJSON(data []byte) error {
	type plain ChannelSampling
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	switch c.State {
	case "On":
		c.State = SamplingObserving
	case "Off":
		c.State = SamplingPaused
	}
	return nil
}

// SamplingEntry is Instrument.spec.sampling as gateways know it.
type SamplingEntry struct {
	// Channels: the first entry is for all channels that have none; its Channel is empty. Intervals are filled in.
	Channels []ChannelSampling `json:"channels"`
	// ConsumersMayAsk for more, down to MinIntervalMillis.
	ConsumersMayAsk   bool  `json:"consumersMayAsk,omitempty"`
	MinIntervalMillis int64 `json:"minIntervalMillis,omitempty"`
}

// Sampling is the command: how often each channel is to be observed. The line is
//
//	command sampling <JSON>
//
// ended by LF. It stands anywhere between other lines of the gateway, gets no
// answer of its own, and is written only to who announced that it takes it.
type Sampling struct {
	Channels []ChannelSampling `json:"channels"`
}

// Line returns the command as it goes over the wire, LF included. Error:
// ErrMalformed for more than MaxCommandLine bytes.
func (s Sampling) Line() (string, error) {
	body, err := Encode(s)
	if err != nil {
		return "", err
	}
	line := commandWord + CommandSampling + " " + string(body) + "\n"
	if len(line) > MaxCommandLine {
		return "", fmt.Errorf("command of %d bytes: %w", len(line), ErrMalformed)
	}
	return line, nil
}

// ParseCommand splits a line, with or without its LF, into a command's type and
// what follows. It returns false for a line that is no command.
func ParseCommand(line string) (kind, body string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), commandWord)
	kind, body, _ = strings.Cut(rest, " ")
	return kind, body, ok
}

// ParseSampling reads the line of a sampling command. Errors: ErrMalformed,
// ErrNewerFormat.
func ParseSampling(line string) (Sampling, error) {
	kind, body, ok := ParseCommand(line)
	if !ok || kind != CommandSampling || len(line) > MaxCommandLine {
		return Sampling{}, fmt.Errorf("command %.100q: %w", line, ErrMalformed)
	}
	s, err := Decode[Sampling]([]byte(body))
	if err == nil && !validChannels(s.Channels) {
		err = fmt.Errorf("command %.200q: %w", line, ErrMalformed)
	}
	if err != nil {
		return Sampling{}, err
	}
	return s, nil
}

// validChannels: at least the first, and each once.
func validChannels(all []ChannelSampling) bool {
	if len(all) == 0 || len(all) > MaxSamplingChannels || all[0].Channel != "" {
		return false
	}
	seen := map[string]bool{}
	for _, c := range all {
		if !c.valid() || seen[c.Channel] {
			return false
		}
		seen[c.Channel] = true
	}
	return true
}

// SamplingReport is what a sender says of commands.
type SamplingReport struct {
	// Obeys is the command that it obeys, as it came; empty before the first.
	Obeys []ChannelSampling `json:"obeys,omitempty"`
	// Achieved of the channels whose observations it sees.
	Achieved []AchievedSampling `json:"achieved,omitempty"`
	// Problem is why it does not obey the last command.
	Problem string `json:"problem,omitempty"`
}

// AchievedSampling is how often a channel really is observed.
type AchievedSampling struct {
	// Channel as in ChannelSampling.
	Channel string `json:"channel,omitempty"`
	// Interval between observations: the mean of the last ones, or how long ago the
	// last one was where that is far longer.
	Interval Span `json:"interval"`
}

func (r *SamplingReport) valid() bool {
	if r == nil {
		return true
	}
	for _, a := range r.Achieved {
		if a.Interval < 0 || !(ChannelSampling{Channel: a.Channel, State: SamplingObserving}).valid() {
			return false
		}
	}
	return (len(r.Obeys) == 0 || validChannels(r.Obeys)) && len(r.Achieved) <= MaxSamplingChannels && len(r.Problem) <= MaxProblem
}

// RequestBucket holds what consumers ask of instruments, see SamplingRequestKey.
// Its entries expire after RequestTTL.
func RequestBucket(site string) string { return "REQUESTS_" + site }

// RequestTTL is when a request lapses unless it is renewed.
const RequestTTL = time.Minute

const (
	requestKey = "request."
	// otherChannels is what a key has for the empty channel.
	otherChannels = "_"
)

// SamplingRequestKey is where a consumer asks for a channel of an instrument.
// Channel as in ChannelSampling.
func SamplingRequestKey(instrument, channel, consumer string) string {
	channel = cmp.Or(channel, otherChannels)
	return requestKey + instrument + "." + channel + "." + consumer
}

// ParseSamplingRequestKey reads what SamplingRequestKey wrote, and returns false
// for other keys.
func ParseSamplingRequestKey(key string) (instrument, channel, consumer string, ok bool) {
	rest, ok := strings.CutPrefix(key, requestKey)
	p := strings.Split(rest, ".")
	if !ok || len(p) != 3 || p[0] == "" || p[1] == "" || p[2] == "" {
		return "", "", "", false
	}
	if p[1] == otherChannels {
		p[1] = ""
	}
	return p[0], p[1], p[2], true
}

// SamplingRequest is how often a consumer wants a channel of an instrument
// observed.
type SamplingRequest struct {
	Instrument string `json:"instrument"`
	// Channel as in ChannelSampling.
	Channel  string `json:"channel,omitempty"`
	Consumer string `json:"consumer"`
	// IntervalMillis between observations.
	IntervalMillis int64     `json:"intervalMillis"`
	At             time.Time `json:"at"`
}

func (r *SamplingRequest) check() error {
	if r.Instrument == "" || r.Consumer == "" || r.IntervalMillis <= 0 ||
		!(ChannelSampling{Channel: r.Channel, State: SamplingObserving, IntervalMillis: r.IntervalMillis, By: r.Consumer}).valid() {
		return fmt.Errorf("request of consumer %.100q to observe %.100q each %d ms: %w", r.Consumer, r.Instrument, r.IntervalMillis, ErrMalformed)
	}
	return nil
}
