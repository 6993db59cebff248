// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Facts are what lists publish about an object as JSON. They omit its sender.
type Facts struct {
	Size         int64       `json:"size"`
	Digest       wire.Digest `json:"sha256"`
	MediaType    string      `json:"mediaType,omitempty"`
	Version      int         `json:"version,omitempty"`
	ObservedFrom *time.Time  `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time  `json:"observedTo,omitempty"`
	// Doubted is as in wire.Record.
	Doubted      *wire.TimeSpan    `json:"doubted,omitempty"`
	ReceivedAt   time.Time         `json:"receivedAt"`
	TimeSource   wire.TimeSource   `json:"timeSource"`
	Completeness wire.Completeness `json:"completeness,omitempty"`
}

// FactsOf returns the facts that are published about a record.
func FactsOf(r *wire.Record) Facts {
	from, to, doubted := r.Told()
	return Facts{
		Size: r.Size, Digest: r.Digest, MediaType: r.MediaType, Version: r.Version, ObservedFrom: from, ObservedTo: to,
		Doubted: doubted, ReceivedAt: r.ReceivedAt, TimeSource: r.TimeSource, Completeness: r.Completeness,
	}
}
