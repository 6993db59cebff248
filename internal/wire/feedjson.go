// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

func appendBase64(b, data []byte) []byte { return base64.StdEncoding.AppendEncode(b, data) }

// appendCompact adds a JSON object without its white space.
func appendCompact(b, object []byte) ([]byte, error) {
	w := bytes.NewBuffer(b)
	if err := json.Compact(w, object); err != nil {
		return b, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	if w.Len() == len(b) || w.Bytes()[len(b)] != '{' {
		return b, fmt.Errorf("not a JSON object: %w", ErrMalformed)
	}
	return w.Bytes(), nil
}

// appendTelemetryJSON adds a telemetry message as a FeedTelemetry.
func appendTelemetryJSON(b, message []byte) ([]byte, error) {
	instrument, channel, err := TelemetrySource(message)
	if err != nil {
		return b, err
	}
	b = appendString(append(b, `{"instrument":`...), instrument)
	b = appendString(append(b, `,"channel":`...), channel)
	b = append(b, `,"datagrams":[`...)
	first := true
	for d, err := range Datagrams(message) {
		if err != nil {
			return b, err
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `{"receivedAt":"`...)
		b = d.ReceivedAt.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, `","source":"`...)
		b = d.Source.AppendTo(b) // its zone, if any, has no place on the wire
		b = append(b, `"`...)
		if d.DestinationPort != 0 {
			b = strconv.AppendUint(append(b, `,"destinationPort":`...), uint64(d.DestinationPort), 10)
		}
		b = append(b, `,"payload":"`...)
		b = append(appendBase64(b, d.Payload), `"}`...)
	}
	return append(b, "]}"...), nil
}

func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always can be
	return append(b, quoted...)
}

// TelemetrySource returns whose telemetry a message holds. Errors: ErrMalformed,
// ErrNewerFormat.
func TelemetrySource(message []byte) (instrument, channel string, err error) {
	format := 0
	for b := message; len(b) > 0; {
		num, typ, value, rest, err := nextField(b)
		if err != nil {
			return "", "", err
		}
		b = rest
		switch {
		case num == fieldFormat && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			format = int(min(v, 1<<30))
		case num == fieldInstrument && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			instrument = string(v)
		case num == fieldChannel && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			channel = string(v)
		}
		if instrument != "" && channel != "" && format != 0 {
			break
		}
	}
	if err := CheckFormat(format); err != nil {
		return "", "", fmt.Errorf("telemetry message: %w", err)
	}
	return instrument, channel, nil
}
