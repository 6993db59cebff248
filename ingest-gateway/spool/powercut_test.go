// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The power goes at a random moment: everything that was receipted is there
// after it, whole. With the syncs left out it is not: so the test would see.
func TestPowerCut(t *testing.T) {
	lost := func(t *testing.T, unsafe bool, after time.Duration) (dir string, receipts, missing int) {
		disk, dir := testenv.Disk(t)
		spool := filepath.Join(dir, "spool")
		told := runIncarnation(t, spool, 1, unsafe, after)
		found := waitingAfterCut(t, filepath.Join(testenv.CutPower(t, disk), "spool"), unsafe)
		for _, n := range told.receipts {
			if !found[n] && !told.archived[n] {
				missing++
			}
		}
		for n := range told.done {
			if found[n] && !unsafe {
				t.Errorf("object %d is done, and synced so, and comes again", n)
			}
		}
		t.Logf("after %v: %d receipts, %d lost", after, len(told.receipts), missing)
		return dir, len(told.receipts), missing
	}
	for range 3 {
		after := 200*time.Millisecond + time.Duration(time.Now().UnixNano()%int64(500*time.Millisecond))
		if _, receipts, missing := lost(t, false, after); receipts == 0 || missing > 0 {
			t.Errorf("of %d receipted objects %d are lost in a power cut", receipts, missing)
		}
	}
	testenv.Control(t, func(t *testing.T) (string, int) {
		dir, _, missing := lost(t, true, 300*time.Millisecond)
		return dir, missing
	})
}

// waitingAfterCut is waiting, except that objects that were never confirmed as safe may be there
// and corrupt, and that without syncs there may be nothing at all.
func waitingAfterCut(t *testing.T, dir string, unsafe bool) map[uint64]bool {
	if _, err := os.Stat(dir); unsafe && err != nil {
		return nil
	}
	s, err := Open(Config{Dir: dir, Size: 1 << 30})
	if err != nil {
		if !unsafe {
			t.Fatal(err)
		}
		return nil
	}
	defer s.Close()
	found := map[uint64]bool{}
	for {
		e, err := s.next()
		if err != nil && !unsafe {
			t.Fatal(err)
		}
		if e == nil || err != nil {
			return found
		}
		n := uint64(e.Notice.ReceivedAt.Nanosecond())
		if e.Verify() != nil {
			continue
		}
		content(t, e)
		if !unsafe && (e.Notice.Digest != wire.Digest(sha256.Sum256(objectOf(n))) || found[n]) {
			t.Fatalf("object %d is another, or twice in the spool", n)
		}
		found[n] = true
	}
}

// The volume is full though the spool is not: nothing more is taken, nothing
// that was taken is lost, and what is archived makes space.
func TestVolumeFull(t *testing.T) {
	cfg := Config{Dir: filepath.Join(smallVolume(t), "spool"), Size: 1 << 30, SegmentSize: 1 << 20}
	s := open(t, cfg)
	objects := fill(t, s, 0)
	if objects < 10 {
		t.Fatalf("%d objects are all that a volume of 4 MiB takes", objects)
	}
	for range 3 {
		e := next(t, s)
		content(t, e)
	}
	closeSpool(t, s)
	s = open(t, cfg)
	for i := range objects {
		e := next(t, s)
		if !bytes.Equal(content(t, e), bytesOf(uint64(i), 100_000)) {
			t.Fatalf("object %d has other bytes", i)
		}
		if err := s.Done(e); err != nil {
			t.Fatal(err)
		}
	}
	if again := fill(t, s, objects); again < objects-2 {
		t.Errorf("emptied, it takes %d objects, and took %d before", again, objects)
	}
	if st := s.Stats(); st.Quarantined != 0 {
		t.Errorf("%+v", st)
	}
}

// smallVolume is a volume of 4 MiB.
func smallVolume(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a small volume needs a mount, which needs root (CAP_SYS_ADMIN)")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "spool-test", dir).CombinedOutput(); err != nil {
		t.Skipf("a small volume needs a mount (CAP_SYS_ADMIN): %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", dir).Run() })
	return dir
}

// fill appends objects until one is refused, and returns how many were taken.
func fill(t *testing.T, s *Spool, from int) int {
	for i := from; ; i++ {
		data := bytesOf(uint64(i), 100_000)
		err := s.Object(noticeOf(data, received), bytes.NewReader(data), int64(len(data)))
		if errors.Is(err, ErrFull) {
			return i - from
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
