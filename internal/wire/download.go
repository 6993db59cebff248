// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"strings"
)

// DownloadsBucket holds what was asked of a Site's feed servers, see DownloadsKey.
func DownloadsBucket(site string) string { return "DOWNLOADS_" + site }

// DownloadsKey is <instrument>.<day>.<writer>.<incarnation>: each incarnation of a feed server writes its own absolute totals. The day is
// the day of the answers.
func DownloadsKey(instrument string, day Day, writer, incarnation string) string {
	return instrument + "." + string(day) + "." + writer + "." + incarnation
}

// ParseDownloadsKey reads what DownloadsKey wrote. Errors: ErrMalformed.
func ParseDownloadsKey(key string) (instrument string, day Day, err error) {
	p := strings.Split(key, ".")
	if len(p) != 4 || slices.Contains(p, "") {
		return "", "", fmt.Errorf("key %q is not <instrument>.<day>.<writer>.<incarnation>: %w", key, ErrMalformed)
	}
	if day, err = ParseDay(p[1]); err != nil {
		return "", "", fmt.Errorf("key %q: %w", key, err)
	}
	return p[0], day, nil
}

// NoInstrument stands in keys of DownloadsBucket for what is about none: pages above
// them, and names that nothing has. No instrument has that name.
const NoInstrument = "_none"

// Downloads are what one incarnation of a feed server answered about an instrument on a day.
type Downloads struct {
	// By reader and class; sums whose readers cannot be distinguished any more are under OtherReaders.
	By []DownloadCount `json:"by"`
}

// OtherReaders stands for the readers beyond MaxDownloadCounts. No reader has that
// name.
const OtherReaders = "_others"

// MaxDownloadCounts bounds the counts of one incarnation, instrument and day.
const MaxDownloadCounts = 256

// DownloadCount counts the answers to one reader, or to anonymous readers, of one class.
type DownloadCount struct {
	// Reader that showed who it is; empty for anonymous readers.
	Reader string `json:"reader,omitempty"`
	// Class of the client, as the feed server's limits have them.
	Class string `json:"class"`
	// Requests that were answered, NotModified of these by 304, Refused by a status of
	// 400 or more; Bytes of the answers' bodies.
	Requests    uint64 `json:"requests"`
	NotModified uint64 `json:"notModified,omitempty"`
	Refused     uint64 `json:"refused,omitempty"`
	Bytes       uint64 `json:"bytes,omitempty"`
}

// Plus adds the counts of another to these.
func (c DownloadCount) Plus(o DownloadCount) DownloadCount {
	c.Requests += o.Requests
	c.NotModified += o.NotModified
	c.Refused += o.Refused
	c.Bytes += o.Bytes
	return c
}
