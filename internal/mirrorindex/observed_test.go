// SPDX-License-Identifier: Apache-2.0

package mirrorindex_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// A selection by observation time finds in an index what it finds in the archive: also a tree of 2003 that was copied and imported in 2024.
func TestObserved(t *testing.T) {
	received, observed := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC), time.Date(2003, 10, 29, 6, 11, 0, 0, time.UTC)
	for gateway, want := range map[string]time.Time{wire.ImportWriter: observed, "gateway-0": received} {
		r := wire.Record{ReceivedAt: received, Gateway: gateway, ObservedFrom: &observed, ObservedTo: &observed}
		e := mirrorindex.EntryOf("a.jpg", &r)
		from, to := e.Observed()
		if first, last := r.Observed(); !from.Equal(want) || !to.Equal(want) || !first.Equal(from) || !last.Equal(to) {
			t.Errorf("of %s: the index says %v to %v and the archive %v to %v, want %v", gateway, from, to, first, last, want)
		}
	}
}
