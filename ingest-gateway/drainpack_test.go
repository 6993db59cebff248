// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The gateway is killed again and again while thousands of small objects drain
// from its spool in packs: each is announced and listed once, and the ledger
// agrees with the senders' lists.
func TestKilledWhilePacksDrain(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	revision := l.declare(t, swarming(port, "StoredOrSpooled"))
	o := gatewayOptions{dir: t.TempDir()}
	g := l.start(t, o)
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	l.minio.Kill()
	s := &swarm{port: port, senders: 16, objects: 500, inFlight: 32, size: 3000}
	s.run(t)
	all := len(s.list.objects)
	waiting := func() int { return int(g.number("substorm_gateway_spool_objects")) }
	if n := waiting(); n != all {
		t.Fatalf("%d of %d objects are in the spool", n, all)
	}
	l.minio.Start()
	kills := 0
	for range 6 {
		before := waiting()
		await(t, "some are archived", func() (bool, string) {
			n := waiting()
			return n == 0 || n < before-rand.IntN(1000), fmt.Sprint(n)
		})
		if waiting() == 0 {
			break
		}
		g.kill()
		kills++
		g = l.start(t, o)
		await(t, "it has read its spool", func() (bool, string) {
			return g.metric("substorm_gateway_spool_objects") != "", ""
		})
	}
	t.Logf("%d kills", kills)
	if kills == 0 {
		t.Error("it was never killed")
	}
	g.awaitReady()
	l.awaitDrained(t, g, &s.list)
	await(t, "each is listed once", func() (bool, string) {
		listed := l.listing(t, "camera")
		twice := 0
		for _, n := range listed {
			if n > 1 {
				twice++
			}
		}
		return len(listed) == all && twice == 0, fmt.Sprintf("%d of %d are listed, %d twice", len(listed), all, twice)
	})
	packs := len(l.keys(t, wire.PacksPrefix(l.site)))
	if packs > all/20 {
		t.Errorf("%d objects are in %d packs", all, packs)
	}
	t.Logf("%d objects are in %d packs", all, packs)
	if duplicates := l.ledger(t, "camera", wire.StepDuplicates); duplicates.Objects != 0 {
		t.Errorf("the ledger counts duplicates: %+v", duplicates)
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
}
