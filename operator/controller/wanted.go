// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// wanted is what a Site wants of its backends, with all that is needed to request it. Hash distinguishes two of them.
type wanted struct {
	hash     string
	marker   wire.SiteMarker
	takeOver string
	streams  []bus.Stream
	buckets  []bus.Bucket
	// copied are the streams in the account of leaves.
	copied  []bus.Stream
	servers []string
	// stood are the streams that existed on these servers before, according to the Site's status.
	stood []string

	// store and jetStream are nil if a Secret is missing or can't be read; jetStreamAmiss has the reason for the latter.
	store          *objectstore.Config
	jetStream      *stream.Config
	storeAmiss     *finding.Finding
	jetStreamAmiss *finding.Finding
	// leaves is how to reach the account of leaves; nil if there is none.
	leaves *stream.Config
}

// names are the wanted streams, those of buckets included, in order.
func (w wanted) names() []string {
	var names []string
	for _, s := range w.streams {
		names = append(names, s.Name)
	}
	for _, b := range w.buckets {
		names = append(names, streamOf(b.Name))
	}
	slices.Sort(names)
	return names
}

func newWanted(site *v1alpha1.Site, secrets workload.Secrets, cluster string) wanted {
	w := wanted{
		marker:   plan.Marker(site, cluster),
		takeOver: site.Annotations[v1alpha1.AnnotationTakeOver],
		streams:  bus.Streams(site),
		buckets:  bus.Buckets(site),
		copied:   bus.CopiedStreams(site),
		servers:  site.Spec.JetStream.Servers,
		stood:    plan.StoodStreams(site),
	}
	w.hash = w.digest(site, secrets)
	if _, missing := secrets.Missing(workload.ObjectStoreSecrets(site)); !missing {
		w.store, w.storeAmiss = storeConfig(site, secrets)
	}
	if _, missing := secrets.Missing(workload.JetStreamSecrets(site)); !missing {
		w.jetStream, w.jetStreamAmiss = jetStreamConfig(site, secrets)
	}
	if w.jetStream != nil && site.Spec.JetStream.LeafAccountKeySecretRef != nil {
		w.leaves = leavesConfig(site, secrets, *w.jetStream)
	}
	return w
}

// leavesConfig is how to reach the account of leaves; nil if its key is not available: the problem is found when the leaves' users are
// issued.
func leavesConfig(site *v1alpha1.Site, secrets workload.Secrets, cfg stream.Config) *stream.Config {
	key, problem := leafAccountKey(site, secrets)
	if problem != nil {
		return nil
	}
	user := bus.LeavesUser(site)
	creds, err := key.mint(user)
	if err != nil {
		return nil
	}
	cfg.Credentials, cfg.InboxPrefix = creds, user.InboxPrefix
	return &cfg
}

func (w wanted) digest(site *v1alpha1.Site, secrets workload.Secrets) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	parts := []any{w.marker, w.takeOver, site.Spec.ObjectStore, site.Spec.JetStream, site.Spec.Leaves}
	for _, need := range slices.Concat(workload.ObjectStoreSecrets(site), workload.JetStreamSecrets(site), workload.LeavesAccountSecrets(site)) {
		if s := secrets[need.Name]; s != nil {
			parts = append(parts, need.Name, s.Data)
		}
	}
	for _, part := range parts {
		if err := enc.Encode(part); err != nil {
			fmt.Fprint(h, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func storeConfig(site *v1alpha1.Site, secrets workload.Secrets) (*objectstore.Config, *finding.Finding) {
	spec := &site.Spec.ObjectStore
	keys := secrets[spec.CredentialsSecretRef.Name]
	cfg := &objectstore.Config{Endpoint: spec.Endpoint, Bucket: spec.Bucket, Region: spec.Region,
		AccessKeyID: value(keys, workload.KeyAccessKeyID), SecretAccessKey: value(keys, workload.KeySecretAccessKey)}
	if spec.TLS != nil {
		var problem *finding.Finding
		if cfg.TLS, problem = readTLS("spec.objectStore.tls", spec.TLS, secrets); problem != nil {
			return nil, problem
		}
	}
	return cfg, nil
}

func jetStreamConfig(site *v1alpha1.Site, secrets workload.Secrets) (*stream.Config, *finding.Finding) {
	spec := &site.Spec.JetStream
	cfg := &stream.Config{Servers: spec.Servers, Name: "substorm-operator"}
	if spec.TLS != nil {
		var problem *finding.Finding
		if cfg.TLS, problem = readTLS("spec.jetStream.tls", spec.TLS, secrets); problem != nil {
			return nil, problem
		}
	}
	if ref := spec.CredentialsSecretRef; ref != nil {
		cfg.Credentials = secrets[ref.Name].Data[workload.KeyUserCreds]
		return cfg, nil
	}
	name := spec.AccountKeySecretRef.Name
	key, err := readAccountKey(secrets[name])
	if err != nil {
		return nil, unreadable(name, "spec.jetStream.accountKeySecretRef", err)
	}
	user := bus.OperatorUser(site)
	if cfg.Credentials, err = key.mint(user); err != nil {
		return nil, unreadable(name, "spec.jetStream.accountKeySecretRef", err)
	}
	cfg.InboxPrefix = user.InboxPrefix
	return cfg, nil
}

func unreadable(secret, field string, err error) *finding.Finding {
	return new(no(v1alpha1.ReasonSecretIncomplete, fmt.Sprintf("Secret %q, which %s names, cannot be used: %v", secret, field, err)))
}
