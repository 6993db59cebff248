// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The subprotocols of WebSocket delivery.
const (
	// SubprotocolBinary has binary messages, each a Frame of frame.proto.
	SubprotocolBinary = "substorm.v1"
	// SubprotocolJSON has text messages, each a FeedMessage.
	SubprotocolJSON = "substorm.v1.json"
)

// Field numbers of frame.proto.
const (
	fieldFrameFormat = 1
	fieldFrameToken  = 2
	fieldFrameRecord = 3

	fieldReplaced = 1
	fieldSampled  = 2
)

// RecordKind is what a record of a Feed is.
type RecordKind protowire.Number

// The kinds of records, which are their field numbers in frame.proto.
const (
	RecordNotice    RecordKind = 3
	RecordTelemetry RecordKind = 4
	RecordGap       RecordKind = 5
)

// String returns the name of the kind in a FeedMessage, which is also the event
// of Server-Sent Events.
func (k RecordKind) String() string {
	switch k {
	case RecordNotice:
		return "notice"
	case RecordTelemetry:
		return "telemetry"
	case RecordGap:
		return "gap"
	}
	return "RecordKind(" + strconv.Itoa(int(k)) + ")"
}

// FrameRecord is a message of a Feed, or a gap record, as a Frame holds it.
type FrameRecord struct {
	Kind RecordKind
	// Payload is the message as it lies in the stream: JSON of a notice, what
	// Datagrams reads of telemetry; or JSON of a gap record. Readers share the
	// frame's memory.
	Payload []byte
	// Replaced and Sampled datagrams or notices of the same source are not given.
	Replaced, Sampled uint64
}

// Frame is one binary message of WebSocket delivery.
type Frame struct {
	// Token is the place behind the last record.
	Token   string
	Records []FrameRecord
}

// AppendFrame begins a frame in b.
func AppendFrame(b []byte, token string) []byte {
	b = protowire.AppendTag(b, fieldFrameFormat, protowire.VarintType)
	b = protowire.AppendVarint(b, Format)
	b = protowire.AppendTag(b, fieldFrameToken, protowire.BytesType)
	return protowire.AppendString(b, token)
}

// AppendFrameRecord adds to a frame that AppendFrame began what stands before the
// payload of a record, which follows as it is: so a payload is shared by the
// frames that carry it.
func AppendFrameRecord(b []byte, kind RecordKind, payload int, replaced, sampled uint64) []byte {
	size := protowire.SizeTag(protowire.Number(kind)) + protowire.SizeBytes(payload)
	for _, n := range [...]uint64{replaced, sampled} {
		if n > 0 {
			size += protowire.SizeTag(fieldReplaced) + protowire.SizeVarint(n)
		}
	}
	b = protowire.AppendTag(b, fieldFrameRecord, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	if replaced > 0 {
		b = protowire.AppendTag(b, fieldReplaced, protowire.VarintType)
		b = protowire.AppendVarint(b, replaced)
	}
	if sampled > 0 {
		b = protowire.AppendTag(b, fieldSampled, protowire.VarintType)
		b = protowire.AppendVarint(b, sampled)
	}
	b = protowire.AppendTag(b, protowire.Number(kind), protowire.BytesType)
	return protowire.AppendVarint(b, uint64(payload))
}

// DecodeFrame reads a frame. Errors: ErrMalformed, ErrNewerFormat. Unknown fields
// are skipped, and records of unknown kinds.
func DecodeFrame(data []byte) (Frame, error) {
	var f Frame
	format := 0
	for b := data; len(b) > 0; {
		num, typ, value, rest, err := nextField(b)
		if err != nil {
			return Frame{}, fmt.Errorf("frame: %w", err)
		}
		b = rest
		switch {
		case num == fieldFrameFormat && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			format = int(min(v, 1<<30))
			if err := CheckFormat(format); err != nil {
				return Frame{}, fmt.Errorf("frame: %w", err)
			}
		case num == fieldFrameToken && typ == protowire.BytesType:
			token, _ := protowire.ConsumeBytes(value)
			f.Token = string(token)
		case num == fieldFrameRecord && typ == protowire.BytesType:
			record, _ := protowire.ConsumeBytes(value)
			r, err := decodeFrameRecord(record)
			if err != nil {
				return Frame{}, fmt.Errorf("frame: %w", err)
			}
			if r.Kind != 0 {
				f.Records = append(f.Records, r)
			}
		}
	}
	if err := CheckFormat(format); err != nil {
		return Frame{}, fmt.Errorf("frame: %w", err)
	}
	return f, nil
}

func decodeFrameRecord(b []byte) (FrameRecord, error) {
	var r FrameRecord
	for len(b) > 0 {
		num, typ, value, rest, err := nextField(b)
		if err != nil {
			return FrameRecord{}, err
		}
		b = rest
		switch {
		case num == fieldReplaced && typ == protowire.VarintType:
			r.Replaced, _ = protowire.ConsumeVarint(value)
		case num == fieldSampled && typ == protowire.VarintType:
			r.Sampled, _ = protowire.ConsumeVarint(value)
		case typ == protowire.BytesType:
			switch kind := RecordKind(num); kind {
			case RecordNotice, RecordTelemetry, RecordGap:
				r.Kind = kind
				r.Payload, _ = protowire.ConsumeBytes(value)
			}
		}
	}
	return r, nil
}

// FeedMessage is one text message of WebSocket delivery, and the data of one Server-Sent Event: one of Notice, Telemetry, Gap and
// Undecodable is set, or none if the message has only the place.
type FeedMessage struct {
	// Token is the place behind the message: resume here.
	Token string `json:"token"`
	// Replaced and Sampled datagrams or notices of the same source are not given.
	Replaced  uint64         `json:"replaced,omitempty"`
	Sampled   uint64         `json:"sampled,omitempty"`
	Notice    *Notice        `json:"notice,omitempty"`
	Telemetry *FeedTelemetry `json:"telemetry,omitempty"`
	Gap       *Gap           `json:"gap,omitempty"`
	// Undecodable is a message of the stream that the feed server cannot read.
	Undecodable []byte `json:"undecodable,omitempty"`
}

// FeedTelemetry is a telemetry message in JSON.
type FeedTelemetry struct {
	Instrument string         `json:"instrument"`
	Channel    string         `json:"channel"`
	Datagrams  []FeedDatagram `json:"datagrams"`
}

// FeedDatagram is a datagram in JSON.
type FeedDatagram struct {
	ReceivedAt time.Time `json:"receivedAt"`
	// Source is the sender's address as host:port.
	Source string `json:"source"`
	// DestinationPort is the gateway's.
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	// Payload as it arrived; base64.
	Payload []byte `json:"payload"`
}

// AppendFeedMessage begins in b the JSON of a FeedMessage. A member such as
// AppendFeedMember makes follows, and "}".
func AppendFeedMessage(b []byte, token string, replaced, sampled uint64) []byte {
	b = append(b, `{"format":`...)
	b = strconv.AppendInt(b, Format, 10)
	b = append(b, `,"token":"`...)
	b = append(b, token...) // of hexadecimal digits, "-" and "~"
	b = append(b, '"')
	if replaced > 0 {
		b = strconv.AppendUint(append(b, `,"replaced":`...), replaced, 10)
	}
	if sampled > 0 {
		b = strconv.AppendUint(append(b, `,"sampled":`...), sampled, 10)
	}
	return append(b, ',')
}

// AppendFeedMember adds to b the member of a FeedMessage that holds a message of a
// stream or a gap record. It has no line breaks. A message that cannot be read is
// the member "undecodable".
func AppendFeedMember(b []byte, kind RecordKind, payload []byte) []byte {
	begin := len(b)
	b = append(append(append(b, '"'), kind.String()...), `":`...)
	var err error
	if kind == RecordTelemetry {
		b, err = appendTelemetryJSON(b, payload)
	} else {
		b, err = appendCompact(b, payload)
	}
	if err != nil {
		b = append(b[:begin], `"undecodable":"`...)
		b = append(appendBase64(b, payload), '"')
	}
	return b
}
