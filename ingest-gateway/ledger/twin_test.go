// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Two pods with one name, as when a pod was given up behind a partition and recreated: what each
// counts stays in the ledger.
func TestTwins(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	now := time.Now()
	day := wire.DayOf(now)
	incarnations := map[string]*gatewayIncarnation{}
	for _, incarnation := range []string{"one", "two"} {
		incarnations[incarnation] = open(t, server, t.TempDir(), incarnation)
	}
	want := map[string]uint64{}
	for round, name := range []string{"a", "b", "c", "d"} {
		for _, incarnation := range []string{"one", "two"} {
			incarnations[incarnation].announceObjects(t, incarnation+name, round+1, now)
			want[incarnation] += uint64(round + 1)
			e := awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations[incarnation].Objects == want[incarnation] })
			for other, objects := range want {
				if got := e.Incarnations[other].Objects; got != objects {
					t.Errorf("after %s wrote: %s has %d objects, counted %d", incarnation, other, got, objects)
				}
			}
		}
	}
	for _, g := range incarnations {
		g.close()
	}
	e := awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Sum().Acknowledged == want["one"]+want["two"] })
	if got := e.Sum().Objects; got != want["one"]+want["two"] {
		t.Errorf("%d objects received in all, counted %v", got, want)
	}
}
