// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// A report names the store only where the store failed.
func TestReasonOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		reason string
	}{
		{fmt.Errorf("list: %w", objectstore.ErrUnavailable), wire.MirrorReasonStore},
		{fmt.Errorf("manifest: %w", wire.ErrMalformed), wire.MirrorReasonStore},
		{&push.Problem{Reason: wire.MirrorReasonUnreachable, Err: objectstore.ErrUnavailable}, wire.MirrorReasonUnreachable},
		{fmt.Errorf("bucket CURSOR_demo: %w", nats.ErrTimeout), wire.MirrorReasonLocal},
		{errors.New("scratch: no space left on device"), wire.MirrorReasonLocal},
	} {
		if got := reasonOf(c.err); got != c.reason {
			t.Errorf("%v: %s, want %s", c.err, got, c.reason)
		}
	}
}
