// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// volumeNow returns a copy of a volume as a kill would leave it at this moment.
func volumeNow(t *testing.T, dir string) string {
	t.Helper()
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return killed
}

// TestResolvedOnce: an object that ends in the spool is counted once, whether the gateway is killed before or after the
// object has left the spool, ends in order while it cannot leave, or tries again itself.
func TestResolvedOnce(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	now := time.Now()
	n := noticeOf("spooled", "one", now)
	left, full := func() error { return nil }, errors.New("no space left on device")
	for _, row := range []struct {
		name string
		// first resolves the object in an incarnation's ledger, and returns the volume that the next one finds.
		first func(t *testing.T, g *gatewayIncarnation, dir string) string
	}{
		{"killed-before-it-left", func(t *testing.T, g *gatewayIncarnation, dir string) (killed string) {
			_ = g.ledger.Resolved(n, wire.CauseDuplicate, func() error { killed = volumeNow(t, dir); return nil })
			g.vanish(t)
			return killed
		}},
		{"could-not-leave", func(t *testing.T, g *gatewayIncarnation, dir string) string {
			for range 3 {
				if err := g.ledger.Resolved(n, wire.CauseDuplicate, func() error { return full }); !errors.Is(err, full) {
					t.Errorf("returned %v", err)
				}
			}
			if err := g.close(); err != nil {
				t.Error(err)
			}
			return dir
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			one := open(t, server, dir, row.name+"-one")
			one.ledger.ObjectBegun(camera, now)
			one.ledger.Received(camera, now, n.Size, n.Digest)
			dir = row.first(t, one, dir)
			two := open(t, server, dir, row.name+"-two")
			if err := two.ledger.Resolved(n, wire.CauseDuplicate, left); err != nil {
				t.Fatal(err)
			}
			three := open(t, server, volumeNow(t, dir), row.name+"-three")
			// Nothing else has this key any more: another object would be counted.
			if err := errors.Join(two.close(), three.ledger.Resolved(noticeOf("another", "one", now), wire.CauseDuplicate, left), three.close()); err != nil {
				t.Fatal(err)
			}
			e := awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool {
				return e.Incarnations[row.name+"-one"].Objects == 1 && e.Incarnations[row.name+"-three"].Resolved == 1
			})
			want := wire.Totals{Objects: 1, ObjectBytes: uint64(n.Size), Resolved: 1, ResolvedBytes: uint64(n.Size), UnfinishedBytes: uint64(n.Size), Unfinished: map[wire.Cause]uint64{wire.CauseDuplicate: 1}}
			if diff := cmp.Diff(want, e.Incarnations[row.name+"-one"].Plus(e.Incarnations[row.name+"-two"])); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreadableOnce: unreadable bytes are also counted once.
func TestUnreadableOnce(t *testing.T) {
	dir, killed := t.TempDir(), ""
	cfg := ledger.Config{Dir: dir, Site: site, Gateway: gateway, Incarnation: "one"}
	one, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Unreadable("000000000001-36", 100, func() error { killed = volumeNow(t, dir); return nil }); err != nil {
		t.Fatal(err)
	}
	today := wire.DayOf(time.Now())
	if got := one.Totals(wire.UnknownInstrument, today).Unfinished[wire.CauseCorrupt]; got != 1 {
		t.Errorf("counted %d times", got)
	}
	cfg.Dir, cfg.Incarnation = killed, "two"
	two, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing is left of the first
		if err := two.Unreadable("000000000001-36", 100, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := two.Totals(wire.UnknownInstrument, today).Unfinished[wire.CauseCorrupt]; got != 1 {
		t.Errorf("counted %d times by the next, of which one is another's", got)
	}
}
