// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// siteMaxBytes is reserved on the disk for each of the base streams.
const siteMaxBytes = 128 << 20

// CreateSite makes the streams and key-value buckets of a Site, as the operator
// does, and waits for them.
func CreateSite(t testing.TB, js jetstream.JetStream, code string) {
	t.Helper()
	CreateReplicatedSite(t, js, code, 1)
}

// CreateReplicatedSite is CreateSite in a cluster: with so many replicas of each.
func CreateReplicatedSite(t testing.TB, js jetstream.JetStream, code string, replicas int) {
	t.Helper()
	ctx, cancel := deadline(startTimeout)
	defer cancel()
	for name, subjects := range map[string][]string{
		wire.ObservationStream(code): {wire.ObservationSubjects(code)},
		wire.NoticeStream(code):      {wire.NoticeSubjects(code), wire.GapSubjects(code)},
	} {
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: subjects, Storage: jetstream.FileStorage,
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: siteMaxBytes,
			Duplicates: 2 * time.Minute, AllowDirect: true, AllowAtomicPublish: true, Replicas: replicas,
		})
		if err != nil {
			t.Fatalf("stream %s: %v", name, err)
		}
	}
	for name, ttl := range map[string]time.Duration{
		wire.RegistryBucket(code): 0, wire.LedgerBucket(code): 0, wire.StatusBucket(code): 0,
		wire.CursorBucket(code): 0, wire.NamesBucket(code): 0, wire.IndexBucket(code): 0, wire.GapsBucket(code): 0,
		wire.DescriptionBucket(code): 0, wire.DownloadsBucket(code): 0,
		wire.LeaseBucket(code): wire.LeaseTTL, wire.RequestBucket(code): wire.RequestTTL,
	} {
		_, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Storage: jetstream.FileStorage, History: 1, TTL: ttl, Replicas: replicas,
		})
		if err != nil {
			t.Fatalf("bucket %s: %v", name, err)
		}
	}
}

// AddLeaf makes the streams of a Site source those of another, as the operator
// does for spec.leaves. The leaf's JetStream domain is its code.
func AddLeaf(t testing.TB, js jetstream.JetStream, site, leaf string) {
	t.Helper()
	ctx, cancel := deadline(startTimeout)
	defer cancel()
	for ours, theirs := range map[string]*jetstream.StreamSource{
		wire.ObservationStream(site): {Name: wire.ObservationStream(leaf), FilterSubject: wire.ObservationSubjects(leaf)},
		wire.NoticeStream(site):      {Name: wire.NoticeStream(leaf), FilterSubject: wire.NoticeSubjects(leaf)},
	} {
		stream, err := js.Stream(ctx, ours)
		if err == nil {
			cfg := stream.CachedInfo().Config
			theirs.OptStartSeq = 1
			theirs.External = &jetstream.ExternalStream{APIPrefix: wire.JetStreamAPI(leaf), DeliverPrefix: wire.SourcedPrefix(site, leaf)}
			cfg.Sources = append(cfg.Sources, theirs)
			_, err = js.UpdateStream(ctx, cfg)
		}
		if err != nil {
			t.Fatalf("source stream %s: %v", ours, err)
		}
	}
}
