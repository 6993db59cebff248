// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Widen lets a stream hold so many bytes, more than a test's.
func Widen(ctx context.Context, js jetstream.JetStream, stream string, size int64) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	c := s.CachedInfo().Config
	c.MaxBytes = size
	_, err = js.UpdateStream(ctx, c)
	return err
}
