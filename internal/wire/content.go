// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// ContentStatus is what the archivist reports of an instrument after an object arrived that is not of the declared media type.
type ContentStatus struct {
	// ReceivedAt is when the last such object was received.
	ReceivedAt time.Time `json:"receivedAt"`
	// ID and Path are those of the first such object of that UTC day, MediaType and Looks what it was declared to be and what it looks like.
	ID        string `json:"id"`
	Path      string `json:"path,omitempty"`
	MediaType string `json:"mediaType"`
	Looks     string `json:"looks"`
	// Count is how many such objects came so far, and Today how many of them on that day.
	Count uint64 `json:"count"`
	Today uint64 `json:"today"`
}

const contentKey = "content."

// ContentStatusKey is where the archivist reports of the media types of an instrument's objects.
func ContentStatusKey(instrument string) string { return contentKey + instrument }

// ParseContentStatusKey returns the instrument that a key of the status bucket names, and false for other keys.
func ParseContentStatusKey(key string) (instrument string, ok bool) { return named(key, contentKey) }
