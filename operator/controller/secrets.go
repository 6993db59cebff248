// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/plan/workload"
)

// secretReader reads Secrets from the API server, by name. It reuses a Secret that it read until the secretPoller finds that the Secret has
// changed.
type secretReader struct {
	reader client.Reader

	mu   sync.Mutex
	seen map[types.NamespacedName]*corev1.Secret // nil if it does not exist
}

func newSecretReader(reader client.Reader) *secretReader {
	return &secretReader{reader: reader, seen: map[types.NamespacedName]*corev1.Secret{}}
}

// read returns the needed Secrets that exist.
func (r *secretReader) read(ctx context.Context, namespace string, needs []workload.SecretNeed) (workload.Secrets, error) {
	found := workload.Secrets{}
	for _, need := range needs {
		key := types.NamespacedName{Namespace: namespace, Name: need.Name}
		r.mu.Lock()
		secret, known := r.seen[key]
		r.mu.Unlock()
		if !known {
			var err error
			if secret, err = r.get(ctx, key); err != nil {
				return nil, err
			}
		}
		if secret != nil {
			found[need.Name] = secret
		}
	}
	return found, nil
}

// get reads a Secret again, past the cache; nil if it does not exist.
func (r *secretReader) get(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		secret = nil // a name that no Secret can have, in an object that was stored before names were bounded
	} else if err := r.reader.Get(ctx, key, secret); isGone(err) {
		secret = nil
	} else if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	r.mu.Lock()
	r.seen[key] = secret
	r.mu.Unlock()
	return secret, nil
}

// isGone returns whether the API server has answered that an object does not exist. It does not trust a 404 from elsewhere on the way: a
// Secret that is gone revokes.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// known returns the names of the Secrets that were read and are trusted.
func (r *secretReader) known() []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.seen))
}

// differs returns whether a Secret seems to have changed since it was read.
func (r *secretReader) differs(key types.NamespacedName, is secretVersion) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.seen[key]
	return known && versionOf(was) != is
}

// compare forgets a Secret that has changed since it was read, and returns whether it did.
func (r *secretReader) compare(key types.NamespacedName, is secretVersion) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.seen[key]
	if !known || versionOf(was) == is {
		return false
	}
	delete(r.seen, key)
	return true
}

func (r *secretReader) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, key)
}

// secretVersion distinguishes two states of a Secret; empty if it does not exist.
type secretVersion struct {
	uid      types.UID
	resource string
}

func versionOf(secret *corev1.Secret) secretVersion {
	if secret == nil {
		return secretVersion{}
	}
	return secretVersion{secret.UID, secret.ResourceVersion}
}
