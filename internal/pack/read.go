// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"iter"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Members yields the members of a pack in its order, as bucket.Members does.
func Members(ctx context.Context, store objectstore.Store, key string, size int64) iter.Seq2[wire.Notice, error] {
	return bucket.Members(ctx, store, key, size)
}
