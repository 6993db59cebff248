// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
)

// probeText is written to check that the bucket is writable.
const probeText = "This object may be removed at any time."

// codeStorageExceeded: the server refuses a stream whose maximum does not fit beside those of the others (errors.json of nats-server).
const codeStorageExceeded jetstream.ErrorCode = 10047

// tryObjectStore sees that the bucket is there, is ours and can be read and
// written, and makes or marks it where it must. Without probe it is not written.
func tryObjectStore(ctx context.Context, store objectstore.Store, want wanted, probe bool) finding.Finding {
	if _, err := store.EnsureBucket(ctx); err != nil {
		return storeProblem(want, "look for the bucket", err)
	}
	ours, key := want.marker, wire.SiteMarkerKey(want.marker.Code)
	found, err := readMarker(ctx, store, key)
	if err != nil {
		return storeProblem(want, "read "+key, err)
	}
	switch plan.JudgeMarker(ours, found, want.takeOver) {
	case plan.MarkerRespect:
		return plan.MarkerConflict(ours, *found, fmt.Sprintf("bucket %q at %s", want.store.Bucket, want.store.Endpoint))
	case plan.MarkerWrite:
		if err := writeMarker(ctx, store, key, ours, found == nil); err != nil {
			return storeProblem(want, "write "+key, err)
		}
	}
	if !probe {
		return finding.Finding{Status: "True", Reason: v1alpha1.ReasonReachable}
	}
	key = wire.StagingKey(ours.Code, "operator", "probe")
	if err := store.Put(ctx, key, strings.NewReader(probeText), int64(len(probeText)), objectstore.PutOptions{ContentType: "text/plain"}); err != nil {
		return storeProblem(want, "write "+key, err)
	}
	return finding.Finding{Status: "True", Reason: v1alpha1.ReasonReachable}
}

func readMarker(ctx context.Context, store objectstore.Store, key string) (*wire.SiteMarker, error) {
	body, _, err := store.Get(ctx, key, objectstore.All)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, 64<<10))
	if err != nil {
		return nil, err
	}
	m, err := wire.Decode[wire.SiteMarker](data)
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// writeMarker: of two Sites that find no marker at the same time, one writes it
// and the other reads it at its next try.
func writeMarker(ctx context.Context, store objectstore.Store, key string, m wire.SiteMarker, createOnly bool) error {
	data, err := wire.Encode(m)
	if err != nil {
		return err
	}
	return store.Put(ctx, key, bytes.NewReader(data), int64(len(data)),
		objectstore.PutOptions{ContentType: wire.ContentTypeJSON, CreateOnly: createOnly})
}

func storeProblem(want wanted, what string, err error) finding.Finding {
	at := fmt.Sprintf("object store %s, bucket %q: %s: %v", want.store.Endpoint, want.store.Bucket, what, err)
	switch {
	case errors.Is(err, objectstore.ErrAccessDenied):
		return no(v1alpha1.ReasonAccessDenied, at+": check the keys in the Secret of spec.objectStore.credentialsSecretRef, and what they may do with the bucket")
	case errors.Is(err, objectstore.ErrFull):
		return no(v1alpha1.ReasonRefused, at+": make space")
	case errors.Is(err, objectstore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return no(v1alpha1.ReasonUnreachable, at+": see that the server runs and that spec.objectStore.endpoint and tls name it")
	default:
		return no(v1alpha1.ReasonRefused, at)
	}
}

func no(reason, message string) finding.Finding {
	return finding.Finding{Status: "False", Reason: reason, Message: message}
}

// errMarker: a stream is another Site's.
type errMarker struct{ finding.Finding }

func (e errMarker) Error() string { return e.Message }

// tryJetStream checks that the streams and buckets are as planned, creates or changes those that are not, and returns the streams that it
// created.
func tryJetStream(ctx context.Context, js jetstream.JetStream, want wanted) (made []string, err error) {
	for _, s := range want.streams {
		created, err := ensureStream(ctx, js, s, want)
		if err != nil {
			return made, fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if created {
			made = append(made, s.Name)
		}
	}
	for _, b := range want.buckets {
		created, err := ensureBucket(ctx, js, b)
		if created {
			made = append(made, streamOf(b.Name))
		}
		if err != nil {
			return made, fmt.Errorf("key-value bucket %s: %w", b.Name, err)
		}
	}
	return made, nil
}

// streamOf is the stream that a key-value bucket is.
func streamOf(bucket string) string { return kvbucket.StreamName(bucket) }

func ensureStream(ctx context.Context, js jetstream.JetStream, s bus.Stream, want wanted) (created bool, err error) {
	existing, err := js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		cfg, err := streamConfig(jetstream.StreamConfig{Name: s.Name}, s, want.marker)
		if err != nil {
			return false, err
		}
		_, err = js.CreateStream(ctx, cfg)
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	is := existing.CachedInfo().Config
	var found *wire.SiteMarker
	if text := is.Metadata[wire.StreamMetadataMarker]; text != "" {
		m, err := wire.Decode[wire.SiteMarker]([]byte(text))
		if err != nil {
			return false, fmt.Errorf("its marker: %w", err)
		}
		found = &m
	}
	if plan.JudgeMarker(want.marker, found, want.takeOver) == plan.MarkerRespect {
		return false, errMarker{plan.MarkerConflict(want.marker, *found, fmt.Sprintf("stream %s at %s", s.Name, strings.Join(want.servers, ",")))}
	}
	cfg, err := streamConfig(is, s, want.marker)
	if err != nil || reflect.DeepEqual(cfg, is) {
		return false, err
	}
	_, err = js.UpdateStream(ctx, cfg)
	return false, err
}

// streamConfig sets the fields of a stream's configuration that the operator owns.
func streamConfig(cfg jetstream.StreamConfig, s bus.Stream, marker wire.SiteMarker) (jetstream.StreamConfig, error) {
	text, err := wire.Encode(marker)
	if err != nil {
		return cfg, err
	}
	cfg.Description = s.Description
	cfg.Subjects = s.Subjects
	cfg.MaxBytes = s.MaxBytes
	cfg.Replicas = s.Replicas
	cfg.Duplicates = s.Duplicates
	cfg.Sources = sourcesOf(s)
	cfg.Retention = jetstream.LimitsPolicy
	cfg.Discard = jetstream.DiscardNew
	cfg.Storage = jetstream.FileStorage
	cfg.AllowDirect = true
	cfg.AllowAtomicPublish = true
	cfg.AllowRollup = false // a message to one subject could remove all others
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[wire.StreamMetadataMarker] = string(text)
	return cfg, nil
}

func ensureBucket(ctx context.Context, js jetstream.JetStream, b bus.Bucket) (created bool, err error) {
	existing, err := js.Stream(ctx, streamOf(b.Name))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = js.CreateStream(ctx, bucketConfig(jetstream.StreamConfig{}, b)); err == nil {
			err = stream.Sync(ctx, js.Conn(), streamOf(b.Name), 0)
		}
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	is := existing.CachedInfo().Config
	cfg := bucketConfig(is, b)
	if reflect.DeepEqual(cfg, is) {
		return false, nil
	}
	if _, err = js.UpdateStream(ctx, cfg); err == nil {
		err = stream.Sync(ctx, js.Conn(), streamOf(b.Name), 0)
	}
	return false, err
}

func bucketConfig(is jetstream.StreamConfig, b bus.Bucket) jetstream.StreamConfig {
	return kvbucket.Bucket{Name: b.Name, Description: b.Description, TTL: b.TTL, Replicas: b.Replicas, Forgets: b.Forgets, Unsynced: b.Unsynced}.Stream(is)
}

func jetStreamProblem(want wanted, err error) finding.Finding {
	at := fmt.Sprintf("JetStream at %s: %v", strings.Join(want.servers, ","), err)
	var marker errMarker
	var api *jetstream.APIError
	switch {
	case errors.As(err, &marker):
		return marker.Finding
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrPermissionViolation):
		return no(v1alpha1.ReasonAccessDenied, at+": check the Secret that spec.jetStream names, and that the servers know the account")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return no(v1alpha1.ReasonRefused, at+": turn JetStream on, for the server and for the account")
	case errors.As(err, &api) && api.ErrorCode == codeStorageExceeded:
		return no(v1alpha1.ReasonRefused, at+": lower spec.jetStream.observations.maxSize or notices.maxSize, or what Feeds declare (spec.stream.maxSize), or give the servers a larger disk")
	case errors.As(err, &api):
		return no(v1alpha1.ReasonRefused, at)
	default:
		return no(v1alpha1.ReasonUnreachable, at+": see that the servers run and that spec.jetStream.servers and tls name them")
	}
}
