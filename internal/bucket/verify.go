// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ErrMissing: the store has no bytes where a record says that they lie.
var ErrMissing = errors.New("the object is missing")

// Verify compares an object's bytes with its size and digest. They pass through
// through, where that is given: it may slow them down. Errors: objectpath.ErrDamaged,
// ErrMissing, and what keeps the store from answering.
func Verify(ctx context.Context, store objectstore.Store, r wire.Record, through func(io.Reader) io.Reader) error {
	body, err := objectpath.Open(ctx, store, r)
	if errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("%s: %w: nothing is stored at %s", r.ID, ErrMissing, r.Key)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	var source io.Reader = body
	if through != nil {
		source = through(body)
	}
	_, err = io.Copy(io.Discard, source)
	return err
}

// rewrittenAfter is how long after its receipt an object may have been stored without being
// read: later it came out of a spool, or something else wrote it again.
const rewrittenAfter = time.Minute

// MayBeRewritten says whether something may have overwritten an object since it was received:
// its size and metadata do not tell.
func MayBeRewritten(info objectstore.Info, receivedAt time.Time) bool {
	return info.ModifiedAt.Sub(receivedAt) > rewrittenAfter
}

// Holds says whether the bytes of a record are part of the archive: whether there is
// anything to verify.
func Holds(r wire.Record) bool { return r.State != wire.StateDuplicate && r.State != wire.StatePurged }
