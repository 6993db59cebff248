// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The ledger's columns of announced objects and duplicates are what the manifests list: after duplicates, with the next
// archivist, and where the ledger was lost while nothing new comes.
func TestAnnouncedColumn(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	day := wire.DayOf(now)
	says := func(when string, announced, duplicates uint64) {
		t.Helper()
		l.await(when, func() bool {
			return l.ledger(camera, day, wire.StepAnnounced).Objects == announced && l.ledger(camera, day, wire.StepDuplicates).Objects == duplicates
		})
	}
	for i, body := range []string{"first", "second", "third", "second"} {
		l.send(camera, now.Add(time.Duration(i)*time.Second), body)
	}
	stop := l.run(l.config("a"))
	says("four are announced, one of them a duplicate", 4, 1)
	sum := l.ledger(camera, day, wire.StepAnnounced)
	want(t, "bytes", uint64(len("first")+len("second")+len("third")+len("second")), sum.ObjectBytes)
	stop()

	l.send(camera, now.Add(5*time.Second), "fifth")
	l.run(l.config("b"))
	says("the next archivist counts on", 5, 1)

	if err := l.js.DeleteKeyValue(t.Context(), wire.LedgerBucket(l.site)); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, l.site)
	says("the ledger was lost", 5, 1)
}
