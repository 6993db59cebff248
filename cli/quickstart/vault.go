// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
)

// Vault is where Secrets lie.
type Vault interface {
	// Get returns the data of a Secret, and false if there is none.
	Get(ctx context.Context, name string) (data map[string][]byte, found bool, err error)
	// Create keeps a new Secret. It returns false, and changes nothing, where one of that name exists.
	Create(ctx context.Context, s *corev1.Secret) (created bool, err error)
	// Change lets a function change the data of a Secret, and stores the data if the function reports a change. The function may be
	// called again if the Secret was changed meanwhile.
	Change(ctx context.Context, name string, change func(data map[string][]byte) (changed bool, err error)) (data map[string][]byte, err error)
}

// Cluster keeps Secrets in a namespace of a cluster. It needs get and create on secrets, and update on that with the
// accounts of NATS.
type Cluster struct{ *kube.Cluster }

const keysOwner = client.FieldOwner("substorm-quickstart-keys")

// Get reads a Secret from the API server.
func (c Cluster) Get(ctx context.Context, name string) (map[string][]byte, bool, error) {
	s, err := c.Secret(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return s.Data, true, nil
}

// Create writes a Secret to the API server.
func (c Cluster) Create(ctx context.Context, s *corev1.Secret) (bool, error) {
	err := c.Client.Create(ctx, s, keysOwner)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create secret %s: %w", s.Name, err)
	}
	return true, nil
}

// Change updates a Secret.
func (c Cluster) Change(ctx context.Context, name string, change func(data map[string][]byte) (bool, error)) (data map[string][]byte, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := c.Secret(ctx, name)
		if err != nil {
			return err
		}
		changed, err := change(s.Data)
		if data = s.Data; err != nil || !changed {
			return err
		}
		return c.Client.Update(ctx, s, keysOwner)
	})
	if err != nil {
		return nil, fmt.Errorf("update secret %s: %w", name, err)
	}
	return data, nil
}

// Memory keeps Secrets in memory, in the order in which they were made: a dry run.
type Memory struct {
	Made []*corev1.Secret
}

// Get returns what Create kept.
func (m *Memory) Get(_ context.Context, name string) (map[string][]byte, bool, error) {
	for _, s := range m.Made {
		if s.Name == name {
			return s.Data, true, nil
		}
	}
	return nil, false, nil
}

// Create keeps a Secret.
func (m *Memory) Create(ctx context.Context, s *corev1.Secret) (bool, error) {
	if _, found, _ := m.Get(ctx, s.Name); found {
		return false, nil
	}
	m.Made = append(m.Made, s)
	return true, nil
}

// Change changes a Secret in place.
func (m *Memory) Change(ctx context.Context, name string, change func(data map[string][]byte) (bool, error)) (map[string][]byte, error) {
	data, found, _ := m.Get(ctx, name)
	if !found {
		return nil, fmt.Errorf("secret %s does not exist", name)
	}
	_, err := change(data)
	return data, err
}
