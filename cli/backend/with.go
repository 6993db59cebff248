// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
)

// WithStore opens a Site's bucket for f, and closes what is open of the Site after it.
func WithStore(ctx context.Context, o Options, f func(*Backend, objectstore.Store) error) error {
	b, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	store, err := b.Store(ctx)
	if err != nil {
		return err
	}
	return f(b, store)
}

// WithJetStream connects to a Site's JetStream for f, and closes what is open of the
// Site after it.
func WithJetStream(ctx context.Context, o Options, f func(*Backend, jetstream.JetStream) error) error {
	b, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	js, err := b.JetStream(ctx)
	if err != nil {
		return err
	}
	return f(b, js)
}

// With is WithStore and WithJetStream together.
func With(ctx context.Context, o Options, f func(*Backend, objectstore.Store, jetstream.JetStream) error) error {
	return WithStore(ctx, o, func(b *Backend, store objectstore.Store) error {
		js, err := b.JetStream(ctx)
		if err != nil {
			return err
		}
		return f(b, store, js)
	})
}
