// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// In the framing LengthPrefixed a prefix with its top bit set begins a control
// frame, not an object: the other 31 bits are the length of its body, a JSON
// object that says its type.
const (
	// PrefixSize is the size of a prefix in bytes, an unsigned big-endian number.
	PrefixSize = 4
	// MaxControl is the greatest length of a control frame's body in bytes.
	MaxControl = 4096
	// MaxPrefixed is the greatest size of an object, in bytes.
	MaxPrefixed = controlBit - 1

	controlBit = 1 << 31

	// MaxSender is the greatest length of Heartbeat.Sender in bytes.
	MaxSender = 64
)

// ControlHeartbeat is the type of a Heartbeat. Receivers pass over types that
// they do not know.
const ControlHeartbeat = "heartbeat"

// ParsePrefix reads a prefix: the length of what follows, and whether that is a
// control frame.
func ParsePrefix(prefix [PrefixSize]byte) (length int64, control bool) {
	n := binary.BigEndian.Uint32(prefix[:])
	return int64(n &^ controlBit), n&controlBit != 0
}

// Span is a length of time that JSON shows as Go does: "-1.5s". It may be
// negative.
type Span time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

// Heartbeat is what a sender says of itself. The answer, a HeartbeatAnswer,
// stands in the order of the receipts.
type Heartbeat struct {
	Type string `json:"type"`
	// Sender tells the senders of an instrument apart: at most MaxSender bytes of
	// ASCII, without spaces. Without it its address does.
	Sender string `json:"sender,omitempty"`
	// SentAt by the sender's clock.
	SentAt time.Time `json:"sentAt"`
	// ClockOffset is what must be added to the sender's clock to get the gateway's,
	// as measured by earlier heartbeats; it is right to within half of RoundTrip.
	// Nil before the first.
	ClockOffset *Span `json:"clockOffset,omitempty"`
	RoundTrip   *Span `json:"roundTrip,omitempty"`
	// Objects and bytes that wait for their receipt, and when the oldest of them
	// was observed, by the sender's clock.
	QueueObjects int64      `json:"queueObjects"`
	QueueBytes   int64      `json:"queueBytes"`
	Oldest       *time.Time `json:"oldest,omitempty"`
	// Sent objects since the sender started: those with a receipt.
	Sent int64 `json:"sent"`
	// SetAside objects that need a person's attention.
	SetAside int64  `json:"setAside,omitempty"`
	Version  string `json:"version,omitempty"`

	// Commands are the types of commands that the sender takes over this
	// connection: CommandSampling. Others are not written to it.
	Commands []string `json:"commands,omitempty"`
	// Sampling is nil where the sender takes no commands.
	Sampling *SamplingReport `json:"sampling,omitempty"`
	// LinkProbe is nil where the sender does not measure it.
	LinkProbe *LinkProbe `json:"linkProbe,omitempty"`
}

// Frame writes the heartbeat as a control frame, prefix included.
func (h Heartbeat) Frame() ([]byte, error) {
	h.Type = ControlHeartbeat
	body, err := Encode(h)
	if err != nil {
		return nil, err
	}
	return ControlFrame(body)
}

// ControlFrame puts a prefix before a body. Error: ErrMalformed for one longer
// than MaxControl.
func ControlFrame(body []byte) ([]byte, error) {
	if len(body) > MaxControl {
		return nil, fmt.Errorf("control frame of %d bytes: %w", len(body), ErrMalformed)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, PrefixSize+len(body)), controlBit|uint32(len(body)))
	return append(frame, body...), nil
}

// ControlType returns the type of a control frame from its body. Error:
// ErrMalformed.
func ControlType(body []byte) (string, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return "", fmt.Errorf("control frame: %w: %v", ErrMalformed, err)
	}
	if head.Type == "" {
		return "", fmt.Errorf("control frame without a type: %w", ErrMalformed)
	}
	return head.Type, nil
}

func (h *Heartbeat) check() error {
	switch {
	case h.Type != ControlHeartbeat || h.SentAt.IsZero() || h.QueueObjects < 0 || h.QueueBytes < 0 || h.Sent < 0 || h.SetAside < 0,
		h.RoundTrip != nil && *h.RoundTrip < 0, len(h.Sender) > MaxSender || strings.ContainsFunc(h.Sender, notPrintable),
		!h.Sampling.valid(), !h.LinkProbe.valid():
		return fmt.Errorf("heartbeat of sender %.100q at %v: %w", h.Sender, h.SentAt, ErrMalformed)
	}
	return nil
}

func notPrintable(r rune) bool { return r <= ' ' || r > '~' }

// HeartbeatAnswer is the line that answers a heartbeat:
//
//	heartbeat received=<RFC 3339> answered=<RFC 3339>
//
// with nanoseconds, in UTC, ended by LF. Unknown trailing " key=value" pairs are
// ignored. With the times at which the sender sent and heard they are the four
// timestamps of NTP (RFC 5905, section 8).
type HeartbeatAnswer struct {
	// Received and Answered by the gateway's clock.
	Received, Answered time.Time
}

// Line returns the answer as it goes over the wire, LF included.
func (a HeartbeatAnswer) Line() string {
	return "heartbeat received=" + a.Received.UTC().Format(time.RFC3339Nano) + " answered=" + a.Answered.UTC().Format(time.RFC3339Nano) + "\n"
}

const utcTime = `([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z)`

var heartbeatLine = regexp.MustCompile(`^heartbeat received=` + utcTime + ` answered=` + utcTime + `( [!-<>-~]+=[!-~]*)*$`)

// ParseHeartbeatAnswer reads a line, with or without its LF. Error: ErrMalformed.
func ParseHeartbeatAnswer(line string) (HeartbeatAnswer, error) {
	if len(line) > MaxReceiptLine {
		return HeartbeatAnswer{}, fmt.Errorf("answer of %d bytes: %w", len(line), ErrMalformed)
	}
	m := heartbeatLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
	if m == nil {
		return HeartbeatAnswer{}, fmt.Errorf("answer %q: %w", line, ErrMalformed)
	}
	received, err := time.Parse(time.RFC3339Nano, m[1])
	if err != nil {
		return HeartbeatAnswer{}, fmt.Errorf("answer %q: %w", line, ErrMalformed)
	}
	answered, err := time.Parse(time.RFC3339Nano, m[2])
	if err != nil {
		return HeartbeatAnswer{}, fmt.Errorf("answer %q: %w", line, ErrMalformed)
	}
	return HeartbeatAnswer{Received: received.UTC(), Answered: answered.UTC()}, nil
}

// Offset is what must be added to the sender's clock to get the gateway's, right
// to within half of roundTrip, the time that the way there and back took.
func (a HeartbeatAnswer) Offset(sent, heard time.Time) (offset, roundTrip time.Duration) {
	there, back := a.Received.Sub(sent), a.Answered.Sub(heard)
	return there/2 + back/2, heard.Sub(sent) - a.Answered.Sub(a.Received)
}
