// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Bytes that took the name of a purged object have their own receipt: neither the purge,
// done again, nor the expiry of the day takes them, whether their metadata can be read
// or not.
func TestOtherBytesStay(t *testing.T) {
	for _, described := range []bool{true, false} {
		l := newLab(t)
		l.fill()
		r := l.collector()
		key := wire.NamedKey(site, camera, "night.fits", 1)
		purge := wire.Removal{Instrument: camera, Day: day, ID: key, Reason: "private", By: "anna", At: now}
		named := l.record(noon, "named")
		named.ID, named.Key, named.Name = key, key, "night.fits"
		named.State, named.Reason, named.ChangedBy, named.PurgedAt = wire.StatePurged, "private", "anna", &now
		l.PutPart(camera, day, 2, named)
		l.removal(r, purge)
		l.passes(r)
		l.want("the purged one", len(l.Keys(key)), 0)

		other := l.record(noon, "other")
		other.ID, other.Key, other.Name = key, key, "night.fits"
		var opts objectstore.PutOptions
		if described {
			metadata, err := wire.ObjectMetadata(wire.Notice{Site: site, Instrument: camera, Record: other})
			if err != nil {
				t.Fatal(err)
			}
			opts.Metadata = metadata
		}
		if err := l.Store.Put(t.Context(), key, strings.NewReader("other"), 5, opts); err != nil {
			t.Fatal(err)
		}
		l.removal(r, purge)
		l.passes(r)
		l.want("other bytes after the purge", len(l.Keys(key)), 1)
		l.want("removals", l.waiting(r), 0)
		for range 3 {
			l.pass(r, now)
		}
		l.want("other bytes after the expiry", len(l.Keys(key)), 1)
		l.want("spared", testutil.ToFloat64(l.metrics.spared), 1)

		l.Put(key, []byte("named"))
		l.removal(r, purge)
		l.passes(r)
		l.want("the purged one, when it came again", len(l.Keys(key)), 0)
	}
}

func (l *lab) removal(r *Collector, is wire.Removal) {
	l.Helper()
	value, err := wire.Encode(is)
	if err != nil {
		l.Fatal(err)
	}
	if _, err := r.kv.Put(l.Context(), is.Key(), value); err != nil {
		l.Fatal(err)
	}
}
