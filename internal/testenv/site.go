// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/retry"
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
	ctx, cancel := deadline(Patience)
	defer cancel()
	for name, subjects := range map[string][]string{
		wire.ObservationStream(code): {wire.ObservationSubjects(code)},
		wire.NoticeStream(code):      wire.NoticeStreamSubjects(code),
	} {
		err := placed(ctx, func() error {
			_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
				Name: name, Subjects: subjects, Storage: jetstream.FileStorage,
				Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: siteMaxBytes,
				Duplicates: 2 * time.Minute, AllowDirect: true, AllowAtomicPublish: true, Replicas: replicas,
			})
			return err
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
		err := placed(ctx, func() error {
			_, err := js.CreateOrUpdateStream(ctx, kvbucket.Bucket{
				Name: name, TTL: ttl, Replicas: replicas, Forgets: name == wire.StatusBucket(code) || name == wire.CursorBucket(code),
			}.Stream(jetstream.StreamConfig{}))
			return err
		})
		if err != nil {
			t.Fatalf("bucket %s: %v", name, err)
		}
	}
}

// placed makes a stream, and tries again while the leader of a cluster takes a peer for
// offline, as where a busy machine holds one up, and while a server that has only now
// enabled JetStream for the account still tries and removes the account's directory.
func placed(ctx context.Context, create func() error) error {
	const noSuitablePeers, storeFailed = 10005, 10049
	for {
		err := create()
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != noSuitablePeers && refused.ErrorCode != storeFailed {
			return err
		}
		if !retry.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// AddLeaf makes the streams of a Site source those of another, by way of streams in the
// account LEAVES, as the operator does for spec.leaves. The leaf's JetStream domain is
// its code. The server has NATSOptions.Operator.
func AddLeaf(t testing.TB, hub *NATSServer, site, leaf string) {
	t.Helper()
	ctx, cancel := deadline(Patience)
	defer cancel()
	js, leaves := hub.JetStream(t), must(jetstream.New(hub.ConnectLeaves(t)))(t)
	for _, s := range []struct {
		theirs, copied, ours string
		take, keep           []wire.SourcedSubject
	}{
		{wire.ObservationStream(leaf), wire.CopiedObservationStream(site, leaf), wire.ObservationStream(site),
			wire.SourcedObservations(site, leaf), wire.CopiedObservations(site, leaf)},
		{wire.NoticeStream(leaf), wire.CopiedNoticeStream(site, leaf), wire.NoticeStream(site),
			wire.SourcedNotices(site, leaf), wire.CopiedNotices(site, leaf)},
	} {
		stream, err := js.Stream(ctx, s.ours)
		if err != nil {
			t.Fatalf("source stream %s: %v", s.ours, err)
		}
		cfg := stream.CachedInfo().Config
		_, err = leaves.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: s.copied, Storage: jetstream.FileStorage, Replicas: cfg.Replicas,
			Discard: jetstream.DiscardNew, MaxBytes: siteMaxBytes, Duplicates: 2 * time.Minute, AllowDirect: true,
			Sources: []*jetstream.StreamSource{{Name: s.theirs, OptStartSeq: 1, SubjectTransforms: transforms(s.take),
				External: &jetstream.ExternalStream{APIPrefix: wire.JetStreamAPI(leaf), DeliverPrefix: wire.SourcedPrefix(site, leaf)}}}})
		if err != nil {
			t.Fatalf("source stream %s: %v", s.copied, err)
		}
		cfg.Sources = append(cfg.Sources, &jetstream.StreamSource{Name: s.copied, OptStartSeq: 1, SubjectTransforms: transforms(s.keep),
			External: &jetstream.ExternalStream{APIPrefix: wire.LeavesAPI, DeliverPrefix: wire.CopiedPrefix(site, leaf)}})
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			t.Fatalf("source stream %s: %v", s.ours, err)
		}
	}
}

func transforms(subjects []wire.SourcedSubject) []jetstream.SubjectTransformConfig {
	var all []jetstream.SubjectTransformConfig
	for _, s := range subjects {
		all = append(all, jetstream.SubjectTransformConfig{Source: s.From, Destination: s.To})
	}
	return all
}
