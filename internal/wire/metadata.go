// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Names of an object's S3 user metadata (x-amz-meta-…). Together they say
// everything that a manifest entry says, so that manifests can be rebuilt from
// the bucket alone. People read Digest, Instrument and Received-At; programs
// read Record.
const (
	MetadataFormat     = "Substorm-Format"
	MetadataInstrument = "Substorm-Instrument"
	MetadataDigest     = "Substorm-Sha256"
	MetadataReceivedAt = "Substorm-Received-At"
	MetadataRecord     = "Substorm-Record"
	// MetadataMembers is how many members a pack has.
	MetadataMembers = "Substorm-Members"
)

// ObjectMetadata returns the S3 user metadata of a stored object.
func ObjectMetadata(n Notice) (map[string]string, error) {
	record, err := json.Marshal(n.Record)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		MetadataFormat:     strconv.Itoa(Format),
		MetadataInstrument: n.Instrument,
		MetadataDigest:     n.Digest.String(),
		MetadataReceivedAt: FormatTime(n.ReceivedAt),
		MetadataRecord:     asciiJSON(record),
	}, nil
}

// maxMetadata is what S3 takes of user metadata, in bytes (Amazon S3 User Guide,
// "Working with object metadata"), and metadataPrefix what each of its names begins with.
const (
	maxMetadata    = 2048
	metadataPrefix = "x-amz-meta-"
)

// MetadataFits says whether S3 takes the metadata of an object.
func MetadataFits(n Notice) bool {
	metadata, err := ObjectMetadata(n)
	size := 0
	for name, value := range metadata {
		size += len(metadataPrefix) + len(name) + len(value)
	}
	return err == nil && size <= maxMetadata
}

// asciiJSON writes all but ASCII as \u escapes: S3 metadata travels in HTTP headers.
func asciiJSON(text []byte) string {
	if isASCII(text) {
		return string(text)
	}
	var out strings.Builder
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		}
	}
	return out.String()
}

// NoticeFromMetadata rebuilds the notice of an object from its key and user
// metadata. Errors: ErrMalformed, ErrNewerFormat.
func NoticeFromMetadata(key string, metadata map[string]string) (Notice, error) {
	format, err := strconv.Atoi(metadata[MetadataFormat])
	if err != nil {
		return Notice{}, fmt.Errorf("object %s: %s %q: %w", key, MetadataFormat, metadata[MetadataFormat], ErrMalformed)
	}
	if err := CheckFormat(format); err != nil {
		return Notice{}, fmt.Errorf("object %s: %w", key, err)
	}
	site, instrument, err := InstrumentOfKey(key)
	if err != nil {
		return Notice{}, err
	}
	n := Notice{Site: site, Instrument: instrument}
	if err := json.Unmarshal([]byte(metadata[MetadataRecord]), &n.Record); err != nil {
		return Notice{}, fmt.Errorf("object %s: %s: %w: %v", key, MetadataRecord, ErrMalformed, err)
	}
	if err := n.check(); err != nil {
		return Notice{}, fmt.Errorf("object %s: %w", key, err)
	}
	if n.Key != key || instrument != metadata[MetadataInstrument] {
		return Notice{}, fmt.Errorf("object %s: metadata names %s of instrument %s: %w", key, n.Key, metadata[MetadataInstrument], ErrMalformed)
	}
	return n, nil
}

func isASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf })
}
