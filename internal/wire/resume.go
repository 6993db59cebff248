// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// ResumeToken is a place in a stream, behind which a consumer continues:
//
//	<stream epoch>-<sequence>-<index>
//
// A stream that was deleted and made again has another epoch, so its sequences cannot pass for the old ones (see StreamEpoch).
type ResumeToken struct {
	Epoch string
	// Sequence of the message that was given last, and Index of the datagram in it
	// that was: 0 for the first, math.MaxUint32 where the message was given whole.
	Sequence uint64
	Index    uint32
}

// String returns the token as it goes over the wire; "" for the zero value,
// which is no place.
func (t ResumeToken) String() string {
	if t.Epoch == "" {
		return ""
	}
	return t.Epoch + "-" + strconv.FormatUint(t.Sequence, 10) + "-" + strconv.FormatUint(uint64(t.Index), 10)
}

// ParseResumeToken reads what String wrote; "" is the zero value. Errors:
// ErrMalformed.
func ParseResumeToken(text string) (ResumeToken, error) {
	if text == "" {
		return ResumeToken{}, nil
	}
	malformed := fmt.Errorf("resume token %.80q is not <stream epoch>-<sequence>-<index>: %w", text, ErrMalformed)
	p := strings.Split(text, "-")
	if len(p) != 3 || !isEpoch(p[0]) {
		return ResumeToken{}, malformed
	}
	sequence, err := strconv.ParseUint(p[1], 10, 64)
	if err != nil {
		return ResumeToken{}, malformed
	}
	index, err := strconv.ParseUint(p[2], 10, 32)
	if err != nil {
		return ResumeToken{}, malformed
	}
	t := ResumeToken{Epoch: p[0], Sequence: sequence, Index: uint32(index)}
	if t.String() != text { // one spelling of each
		return ResumeToken{}, malformed
	}
	return t, nil
}

// isEpoch says whether text may be what StreamEpoch returns.
func isEpoch(text string) bool {
	n, err := strconv.ParseUint(text, 16, 63)
	return err == nil && strconv.FormatUint(n, 16) == text
}

// FeedToken is a place in a Feed: one in each base stream that it carries. In
// writing the place among the notices comes first, then "~" and the place in the
// telemetry; either may be empty.
type FeedToken struct {
	Notices, Telemetry ResumeToken
}

const feedTokenSeparator = "~"

// String returns the token as it goes over the wire.
func (t FeedToken) String() string {
	return t.Notices.String() + feedTokenSeparator + t.Telemetry.String()
}

// ParseFeedToken reads what String wrote. "" is the zero value: nothing was given
// yet. Errors: ErrMalformed.
func ParseFeedToken(text string) (FeedToken, error) {
	if text == "" {
		return FeedToken{}, nil
	}
	notices, telemetry, found := strings.Cut(text, feedTokenSeparator)
	if !found {
		return FeedToken{}, fmt.Errorf("resume token %.80q is not <notices>~<telemetry>: %w", text, ErrMalformed)
	}
	n, err := ParseResumeToken(notices)
	if err != nil {
		return FeedToken{}, err
	}
	o, err := ParseResumeToken(telemetry)
	return FeedToken{Notices: n, Telemetry: o}, err
}
