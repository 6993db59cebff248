// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// confirmLab is one whose archive waits for the folder.
type confirmLab struct {
	*lab
	ledger, status jetstream.KeyValue
}

func newConfirmLab(t *testing.T) *confirmLab {
	t.Helper()
	l := &confirmLab{lab: newLab(t)}
	kv := func(bucket string) jetstream.KeyValue {
		t.Helper()
		kv, err := l.JetStream.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	l.ledger, l.status = kv(wire.LedgerBucket(archivetest.Site)), kv(wire.StatusBucket(archivetest.Site))
	s := *l.Snapshot()
	reader := s.Readers[archivetest.Reader]
	reader.Pulls = &wire.PullsEntry{HoldMillis: 1}
	s.Readers = map[string]wire.ReaderEntry{archivetest.Reader: reader}
	l.Set(&s)
	l.token, l.Prune = archivetest.Token, plan.PruneNever
	return l
}

// has is how many objects of the day of the storm the ledger says that the folder has.
func (l *confirmLab) has() uint64 {
	l.Helper()
	entry, _, err := stream.Load[wire.LedgerEntry](l.Context(), l.ledger, wire.LedgerKey(archivetest.Camera, wire.DayOf(storm), wire.StepPulled, archivetest.Reader))
	if err != nil {
		l.Fatal(err)
	}
	return entry.Sum().Objects
}

func (l *confirmLab) report() wire.PullerStatus {
	l.Helper()
	is, _, err := stream.Load[wire.PullerStatus](l.Context(), l.status, wire.PullerStatusKey(archivetest.Reader))
	if err != nil {
		l.Fatal(err)
	}
	return is
}

// A folder is not one that keeps what expires there, where it removes that, too; nor where it lost a copy for good.
func TestComparedAt(t *testing.T) {
	t.Parallel()
	l := newConfirmLab(t)
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	l.force = true
	l.pull()
	if l.has() != 1 || l.report().ComparedAt.IsZero() {
		t.Errorf("%d objects, %+v", l.has(), l.report())
	}
	l.Prune = plan.PruneWhenExpired
	l.pull()
	if is := l.report(); !is.ComparedAt.IsZero() || is.VerifiedTo.IsZero() {
		t.Errorf("a folder that removes what expires: %+v", is)
	}
}

// The confirmations of an earlier folder with the same token do not count once a run begins with an empty one, also where that run does not come far.
func TestNewFolder(t *testing.T) {
	t.Parallel()
	l := newConfirmLab(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.force = true
	l.pull()
	l.force = false
	if l.has() != 2 || l.report().ComparedAt.IsZero() {
		t.Fatalf("%d objects, %+v", l.has(), l.report())
	}
	l.dir = t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.seen = func(f pull.Figures) {
		if f.OwedObjects > 0 {
			cancel()
		}
	}
	if err := l.from(ctx, l.URL); !errors.Is(err, context.Canceled) {
		t.Fatalf("the run ends with %v", err)
	}
	if is := l.report(); l.has() != 0 || !is.ComparedAt.IsZero() || !is.VerifiedTo.IsZero() {
		t.Errorf("a folder that has nothing: %d objects, %+v", l.has(), is)
	}
	l.seen = nil
	l.pull()
	if is := l.report(); l.has() != 2 || is.VerifiedTo.IsZero() {
		t.Errorf("in the end %d objects, %+v", l.has(), is)
	}
}
