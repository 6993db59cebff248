// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/wire"
)

// A day that is older than its Instrument keeps expires as a whole: what others keep
// stays, and what shares a pack with it. Mirrors and legal hold are waited for.
func TestExpire(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.collector()
	whole := map[wire.State]int{wire.StateCurrent: 7}
	l.pass(r, noon.AddDate(0, 0, 2)) // a day and a half after its end
	l.want("before it is due", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)

	l.hold = true
	l.pass(r, now)
	l.want("under hold nothing falls due", l.waiting(r), 0)
	l.hold = false
	l.has("eiscat", 0)
	l.pass(r, now)
	l.want("a mirror has not got it", l.states(camera), whole)
	l.want("removals", l.waiting(r), 1)
	l.hold = true
	l.pass(r, now.Add(2*time.Hour))
	l.want("under hold again", l.states(camera), whole)
	l.hold = false

	l.keep = nil // the Instrument keeps all by now
	l.pass(r, now.Add(2*time.Hour))
	l.want("it is kept", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)

	l.keep = &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds(), HoldMillis: time.Hour.Milliseconds()}
	l.pass(r, now.Add(3*time.Hour))
	l.want("the mirror is waited for anew", l.states(camera), whole)
	l.pass(r, now.Add(4*time.Hour))
	l.want("readers are waited for", l.waiting(r), 1)
	l.want("packs", len(l.Keys(wire.PacksPrefix(site))), 2)
	l.pass(r, now.Add(5*time.Hour))
	l.want("removals", l.waiting(r), 0)
	l.gone()
	for rec, err := range manifest.Records(t.Context(), l.Store, site, camera, day) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == wire.StatePurged && (rec.Reason != "expired: kept for 48h0m0s" || rec.ChangedBy != "spec.archive.expiry" || rec.PurgedAt == nil) {
			t.Errorf("%+v", rec)
		}
	}
	l.index()
	removed := testutil.ToFloat64(l.metrics.objects.WithLabelValues(byExpiry))
	l.want("objects removed", removed, 6)
	versions := len(l.Keys(wire.ManifestPrefix(site, camera, day)))
	for range 3 { // bytes that others keep are there, and are no reason to start over, whatever an index says
		if err := r.expireLater(t.Context(), camera, DueDay{Day: day, Reason: "its bytes"}, now.Add(6*time.Hour)); err != nil {
			t.Fatal(err)
		}
		l.pass(r, now.Add(6*time.Hour))
	}
	l.want("nothing is due any more", l.waiting(r), 0)
	l.want("objects removed", testutil.ToFloat64(l.metrics.objects.WithLabelValues(byExpiry)), removed)
	l.want("manifests", len(l.Keys(wire.ManifestPrefix(site, camera, day))), versions)
}

// Whenever the process dies, nothing that is listed as current lacks its bytes, and the
// next one ends what was begun.
func TestExpireKilled(t *testing.T) {
	l := newLab(t)
	for writes := 0; ; writes++ {
		l.Store.KillAfter(-1)
		l.fill()
		k, stop := l.keeper()
		r := l.collectorWith(k)
		if _, err := r.findDue(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		l.Store.KillAfter(writes)
		err := r.pass(t.Context(), now)
		if err == nil {
			err = r.pass(t.Context(), now.Add(time.Hour))
		}
		finished := err == nil
		if err != nil && !errors.Is(err, manifesttest.ErrKilled) {
			t.Fatal(err)
		}
		l.Store.KillAfter(-1)
		stop()
		l.states(camera)
		l.states(sonde)
		k, stop = l.keeper()
		next := l.collectorWith(k)
		shared := wire.PackKey(site, noon, "gateway-0", "one", 1)
		before := len(l.Keys(shared))
		if err := next.pass(t.Context(), now.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		l.want(fmt.Sprintf("the pack that the sonde shares, while readers learn, after %d writes", writes), len(l.Keys(shared)), before)
		if err := next.pass(t.Context(), now.Add(3*time.Hour)); err != nil {
			t.Fatal(err)
		}
		stop()
		l.want(fmt.Sprintf("removals after %d writes", writes), l.waiting(next), 0)
		l.gone()
		l.told(fmt.Sprintf("after %d writes", writes))
		if finished {
			if writes < 8 {
				t.Errorf("it took %d writes only", writes)
			}
			return
		}
	}
}
