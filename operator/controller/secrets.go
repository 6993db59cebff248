// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/plan"
)

// Secrets are read by name and never listed or watched: the operator may get
// them and no more. What was read is believed for a while; where something was
// amiss, only briefly.
const (
	secretAge      = time.Minute
	secretAgeAmiss = 5 * time.Second
)

// secretReader reads Secrets from the API server.
type secretReader struct {
	reader client.Reader
	now    func() time.Time

	mu   sync.Mutex
	seen map[types.NamespacedName]seenSecret
}

type seenSecret struct {
	secret *corev1.Secret
	at     time.Time
}

func newSecretReader(reader client.Reader, now func() time.Time) *secretReader {
	return &secretReader{reader: reader, now: now, seen: map[types.NamespacedName]seenSecret{}}
}

// read returns those of the needed Secrets that exist.
func (r *secretReader) read(ctx context.Context, namespace string, needs []plan.SecretNeed, maxAge time.Duration) (plan.Secrets, error) {
	found := plan.Secrets{}
	for _, need := range needs {
		secret, err := r.get(ctx, types.NamespacedName{Namespace: namespace, Name: need.Name}, maxAge)
		if err != nil {
			return nil, err
		}
		if secret != nil {
			found[need.Name] = secret
		}
	}
	return found, nil
}

func (r *secretReader) get(ctx context.Context, key types.NamespacedName, maxAge time.Duration) (*corev1.Secret, error) {
	r.mu.Lock()
	seen, known := r.seen[key]
	r.mu.Unlock()
	if known && r.now().Sub(seen.at) < maxAge {
		return seen.secret, nil
	}
	secret := &corev1.Secret{}
	if err := r.reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		secret = nil
	} else if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	r.mu.Lock()
	r.seen[key] = seenSecret{secret, r.now()}
	r.mu.Unlock()
	return secret, nil
}
