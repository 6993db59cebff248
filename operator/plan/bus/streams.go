// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// duplicateWindow is how long JetStream drops a message whose id it has seen.
const duplicateWindow = 2 * time.Minute

// Stream is a base stream: files, limits retention, new messages refused when full (the archivist purges archived messages, so nothing else
// may be dropped).
type Stream struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Subjects    []string      `json:"subjects"`
	MaxBytes    int64         `json:"maxBytes"`
	Replicas    int           `json:"replicas"`
	Duplicates  time.Duration `json:"duplicates"`
	// Sources are streams elsewhere whose messages the stream holds too.
	Sources []Source `json:"sources,omitempty"`
}

// Bucket is a key-value bucket: files, history of one.
type Bucket struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	TTL         time.Duration `json:"ttl,omitempty"`
	Replicas    int           `json:"replicas"`
	// Forgets: some of its keys have names that never come again, such as those of pods. Nothing stays of these once they are removed.
	Forgets bool `json:"forgets,omitempty"`
	// Unsynced: a write is acknowledged before it is on the disk. A power cut may lose the last writes.
	Unsynced bool `json:"unsynced,omitempty"`
}

// Streams are the two base streams of a Site, which also hold the messages of its leaves' base streams.
func Streams(site *v1alpha1.Site) []Stream {
	code, js := site.Spec.Code, &site.Spec.JetStream
	return []Stream{
		{
			Name:        wire.ObservationStream(code),
			Description: "Telemetry of Site " + code,
			Subjects:    []string{wire.ObservationSubjects(code)},
			MaxBytes:    js.Observations.MaxSize.Value(),
			Replicas:    int(js.Replicas),
			Duplicates:  duplicateWindow,
			Sources:     sources(site, leafObservations),
		},
		{
			Name:        wire.NoticeStream(code),
			Description: "Notices of stored objects of Site " + code,
			Subjects:    wire.NoticeStreamSubjects(code),
			MaxBytes:    js.Notices.MaxSize.Value(),
			Replicas:    int(js.Replicas),
			Duplicates:  duplicateWindow,
			Sources:     sources(site, leafNotices),
		},
	}
}

// Buckets are the key-value buckets of a Site. Reports and leases come all the time, and a power cut that takes the last of them ends all
// programs of a standalone Site, too: each reports again, and no lease has a holder. Their revisions may then come again, so nothing
// outside of these buckets relies on them. Other Sites have their programs on other machines than their servers.
func Buckets(site *v1alpha1.Site) []Bucket {
	code, replicas := site.Spec.Code, int(site.Spec.JetStream.Replicas)
	return []Bucket{
		{Name: wire.RegistryBucket(code), Description: "Instruments as gateways of Site " + code + " know them", Replicas: replicas},
		{Name: wire.LedgerBucket(code), Description: "Ledger of Site " + code, Replicas: replicas},
		{Name: wire.LeaseBucket(code), Description: "Leases of Site " + code, TTL: wire.LeaseTTL, Replicas: replicas, Unsynced: finding.IsStandalone(site)},
		{Name: wire.StatusBucket(code), Description: "Reports of gateways of Site " + code, Replicas: replicas, Forgets: true, Unsynced: finding.IsStandalone(site)},
		{Name: wire.CursorBucket(code), Description: "Cursors of Site " + code, Replicas: replicas, Forgets: true},
		{Name: wire.RequestBucket(code), Description: "What consumers ask of instruments of Site " + code, TTL: wire.RequestTTL, Replicas: replicas},
		{Name: wire.NamesBucket(code), Description: "Names of objects in Site " + code, Replicas: replicas},
		{Name: wire.IndexBucket(code), Description: "Days of the archive of Site " + code, Replicas: replicas},
		{Name: wire.GapsBucket(code), Description: "What is missing of what instruments of Site " + code + " observe", Replicas: replicas},
		{Name: wire.DescriptionBucket(code), Description: "What instruments of Site " + code + " said of their data, and when", Replicas: replicas},
		{Name: wire.DownloadsBucket(code), Description: "What readers asked of Site " + code, Replicas: replicas},
	}
}
