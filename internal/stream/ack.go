// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// verdict is what an answer says about a message or a batch.
type verdict int

const (
	// again: it may or may not be stored; the same may be sent again.
	again verdict = iota
	// taken: it is stored.
	taken
	// full: it is not stored, and will not be before the stream is trimmed.
	full
	// refused: it is not stored, and never will be.
	refused
)

// Codes of errors that JetStream answers with (errors.json of nats-server).
const (
	codeAccountResources     = 10002
	codeInsufficientResource = 10023
	codeMemoryResources      = 10028
	codeStorageResources     = 10047
	codeStoreFailed          = 10077
	codeDuplicateConflict    = 10158
	codeBatchesDisabled      = 10174
	codeWrongLast            = 10071
	codeWrongLastConstant    = 10164
)

// publishAck is the answer to a message or, with count set, to a batch.
type publishAck struct {
	stream    string
	sequence  uint64
	duplicate bool
	count     int
	code      int
}

var errNobody = errors.New("no responders: the stream does not exist, or JetStream is starting")

// parseAck reads an answer. The error says why it is not taken.
func parseAck(msg *nats.Msg, stream string) (publishAck, verdict, error) {
	if len(msg.Data) == 0 {
		return publishAck{}, again, errNobody
	}
	var a struct {
		Stream    string `json:"stream"`
		Sequence  uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Count     int    `json:"count"`
		Error     *struct {
			Status      int    `json:"code"`
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &a); err != nil {
		return publishAck{}, again, fmt.Errorf("answer %.100q: %w", msg.Data, err)
	}
	if a.Error != nil {
		err := fmt.Errorf("%s (%d)", a.Error.Description, a.Error.Code)
		if a.Error.Code == codeWrongLast || a.Error.Code == codeWrongLastConstant {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return publishAck{code: a.Error.Code}, errorVerdict(a.Error.Status, a.Error.Code, a.Error.Description), err
	}
	ack := publishAck{stream: a.Stream, sequence: a.Sequence, duplicate: a.Duplicate, count: a.Count}
	if a.Stream != stream {
		return ack, refused, fmt.Errorf("stream %q stored it: the subject must belong to %s alone", a.Stream, stream)
	}
	return ack, taken, nil
}

func errorVerdict(status, code int, description string) verdict {
	switch code {
	case codeAccountResources, codeInsufficientResource, codeMemoryResources, codeStorageResources:
		return full
	case codeStoreFailed: // with the reason as text
		if strings.HasPrefix(description, "maximum ") && strings.HasSuffix(description, " exceeded") {
			return full
		}
		if strings.Contains(description, "too large") {
			return refused
		}
		return again
	case codeDuplicateConflict: // the first of the two is still on its way
		return again
	}
	if status >= 400 && status < 500 {
		return refused
	}
	return again
}
