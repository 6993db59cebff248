// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"errors"
	"log/slog"

	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/internal/stream"
)

func (d *delivery) fill(_ context.Context, _ registry.Selection, _ *stream.Lease, _ *slog.Logger) error {
	return errors.New("not yet")
}
