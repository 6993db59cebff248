// SPDX-License-Identifier: Apache-2.0

// Package quickstart makes the keys of the quickstart chart's servers: once, in the cluster, as Secrets. No key is ever overwritten: a
// holder of these keys owns the messages and objects that they guard.
package quickstart

import (
	"context"
	"fmt"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config of Keys.
type Config struct {
	// Namespace that the Secrets and the servers live in.
	Namespace string
	// Prefix of the names of Secrets and Services: <prefix>-nats, <prefix>-s3 and so on.
	Prefix string
	// ClusterDomain ends the cluster's DNS names, as in cluster.local.
	ClusterDomain string
	// Instance is the value of the Secrets' label app.kubernetes.io/instance.
	Instance string
}

// Keys makes every Secret of the quickstart that v does not hold yet. A run that was interrupted is completed by the
// next one: what exists is read, checked and built upon. It returns an error, and makes nothing more, where what
// exists contradicts itself.
func Keys(ctx context.Context, log *slog.Logger, v Vault, c Config) error {
	m := maker{vault: v, config: c, log: log}
	nats, err := m.ensure(ctx, natsOperator(c))
	if err != nil {
		return err
	}
	auth, err := m.ensure(ctx, natsAuth(c, nats))
	if err != nil {
		return err
	}
	all := []recipe{natsAccount(c, nats)}
	for _, a := range sideAccounts {
		all = append(all, a.recipe(c, auth))
	}
	for _, r := range append(all, s3Credentials(c), s3Reader(c), s3Gateway(c)) {
		if _, err := m.ensure(ctx, r); err != nil {
			return err
		}
	}
	ca, err := m.ensure(ctx, authority(c))
	if err != nil {
		return err
	}
	for _, r := range leaves(c, ca) {
		if _, err := m.ensure(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// recipe says how one Secret is made and what it must hold.
type recipe struct {
	name string
	kind corev1.SecretType
	// keys that it must have.
	keys []string
	// children are the Secrets made from this one: they are worth nothing with another one in its place.
	children []string
	make     func() (map[string][]byte, error)
	// complete, if set, adds to a Secret that was found what an earlier release did not make, and keeps what is there. It says whether it
	// changed anything.
	complete func(data map[string][]byte) (changed bool, err error)
	// check returns what is wrong with a Secret that was found.
	check func(data map[string][]byte) error
}

type maker struct {
	vault  Vault
	config Config
	log    *slog.Logger
}

// ensure returns the data of r's Secret, and makes the Secret if it does not exist.
func (m maker) ensure(ctx context.Context, r recipe) (map[string][]byte, error) {
	data, found, err := m.vault.Get(ctx, r.name)
	if err != nil {
		return nil, err
	}
	if !found {
		data, found, err = m.create(ctx, r)
		if err != nil {
			return nil, err
		}
	}
	if !found {
		m.log.Info("secret created", "secret", r.name)
		return data, nil
	}
	if data, err = m.completed(ctx, r, data); err != nil {
		return nil, err
	}
	for _, key := range r.keys {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("secret %s has no %s: restore it from a backup, or delete the secret to have a new one made", r.name, key)
		}
	}
	if err := r.check(data); err != nil {
		return nil, fmt.Errorf("secret %s: %w", r.name, err)
	}
	m.log.Info("secret kept", "secret", r.name)
	return data, nil
}

// completed returns the data of a Secret that was found with what it lacks.
func (m maker) completed(ctx context.Context, r recipe, data map[string][]byte) (map[string][]byte, error) {
	if r.complete == nil {
		return data, nil
	}
	if changed, err := r.complete(maps.Clone(data)); err != nil || !changed {
		return data, wrapped("secret "+r.name, err)
	}
	changed := false
	data, err := m.vault.Change(ctx, r.name, func(data map[string][]byte) (added bool, err error) {
		added, err = r.complete(data)
		changed = added
		return added, err
	})
	if err == nil && changed {
		m.log.Info("secret completed: restart the servers that have read it", "secret", r.name)
	}
	return data, err
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// create makes the Secret. If another process was faster, it returns the data of that process's Secret and true.
func (m maker) create(ctx context.Context, r recipe) (data map[string][]byte, found bool, err error) {
	for _, child := range r.children {
		_, orphan, err := m.vault.Get(ctx, child)
		if err != nil {
			return nil, false, err
		}
		if orphan {
			return nil, false, fmt.Errorf("secret %s is missing and %s, which was made from it, is there: restore %s from a backup, "+
				"or delete %s too (what the old keys guard is then out of reach)", r.name, child, r.name, child)
		}
	}
	if data, err = r.make(); err != nil {
		return nil, false, fmt.Errorf("make secret %s: %w", r.name, err)
	}
	created, err := m.vault.Create(ctx, m.secret(r, data))
	if err != nil || created {
		return data, false, err
	}
	data, found, err = m.vault.Get(ctx, r.name)
	if err == nil && !found {
		err = fmt.Errorf("secret %s appeared and was gone again: run this once more", r.name)
	}
	return data, found, err
}

func (m maker) secret(r recipe, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      r.name,
			Namespace: m.config.Namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name":       "substorm-quickstart",
				"app.kubernetes.io/instance":   m.config.Instance,
				"app.kubernetes.io/component":  "keys",
				"app.kubernetes.io/part-of":    "substorm",
				"app.kubernetes.io/managed-by": "substorm-quickstart-keys",
			},
		},
		Type: r.kind,
		Data: data,
	}
}
