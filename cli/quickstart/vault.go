// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Vault is where Secrets lie.
type Vault interface {
	// Get returns the data of a Secret, and false where there is none.
	Get(ctx context.Context, name string) (data map[string][]byte, found bool, err error)
	// Create keeps a new Secret. It returns false, and changes nothing, where one of that name exists.
	Create(ctx context.Context, s *corev1.Secret) (created bool, err error)
}

// Cluster keeps Secrets in a namespace of a cluster. It needs get and create on secrets.
type Cluster struct {
	Secrets typedcorev1.SecretInterface
}

// Get reads a Secret from the API server.
func (c Cluster) Get(ctx context.Context, name string) (map[string][]byte, bool, error) {
	s, err := c.Secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read secret %s: %w", name, err)
	}
	return s.Data, true, nil
}

// Create writes a Secret to the API server.
func (c Cluster) Create(ctx context.Context, s *corev1.Secret) (bool, error) {
	_, err := c.Secrets.Create(ctx, s, metav1.CreateOptions{FieldManager: "substorm-quickstart-keys"})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create secret %s: %w", s.Name, err)
	}
	return true, nil
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
