// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// controlAttempts is how often a control is tried. An attempt takes seconds, and one is enough unless others sync.
const controlAttempts = 5

// Control shows that a test would detect data that a power cut loses: try leaves syncs out, cuts the power, and returns the folder of its
// Disk, which is still mounted, and how much is lost. It fails if nothing is lost.
//
// Data that was not synced is lost for certain: on a Disk a file has no name that lasts before the journal is committed, which flushes
// the disk, and ext4 does so by itself after five minutes or when the journal is full. But sync(2) commits what all file systems of the
// machine have, and any process may call it: MinIO with MINIO_FS_OSYNC, as in the quickstart of some cluster, does so for each object. An
// attempt that loses nothing and during which all disks were flushed proves nothing, and is made again. If that is known of each, the
// control is skipped and says so.
func Control(t *testing.T, try func(t *testing.T) (dir string, lost int)) {
	t.Helper()
	t.Run("without syncs", func(t *testing.T) {
		_, idle := DiskOf(t, 16<<20)
		excused, judged := 0, false
		for n := range controlAttempts {
			ok := t.Run(fmt.Sprint("attempt ", n+1), func(t *testing.T) {
				before, err := Flushes(idle)
				dir, lost := try(t)
				own, err1 := Flushes(dir)
				all, err2 := Flushes(idle)
				all -= before
				t.Logf("%d lost; the disk was flushed %d times since it was mounted, and one that nobody uses %d times meanwhile", lost, own, all)
				err = errors.Join(err, err1, err2)
				switch {
				case lost > 0:
					judged = true
				case err != nil:
					t.Logf("how often disks are flushed is not known: %v", err)
				case own == 0:
					t.Error("nothing is lost, although no sync was seen: the test tests nothing")
				case all > 0:
					excused++
				}
			})
			if judged || !ok {
				return
			}
		}
		if excused < controlAttempts {
			t.Fatalf("nothing is lost in %d attempts, and only in %d of them all disks are known to have been flushed: the syncs are not left out, and the test tests nothing",
				controlAttempts, excused)
		}
		t.Skipf("NOT JUDGED: nothing was left to lose in %d attempts, as something on this machine synced all disks, sync(2); try it again without that", controlAttempts)
	})
}

// flushed has how often the disk of each folder had been flushed when it was mounted: a loop device counts what it did for others, too.
var flushed sync.Map

func countFlushes(dir string) {
	if n, err := flushesOf(dir); err == nil {
		flushed.Store(dir, n)
	}
}

// Flushes is how often the Disk of a folder was flushed since it was mounted.
func Flushes(dir string) (uint64, error) {
	n, err := flushesOf(dir)
	if err != nil {
		return 0, err
	}
	before, ok := flushed.Load(dir)
	if !ok {
		return 0, fmt.Errorf("%s is not a Disk", dir)
	}
	return n - before.(uint64), nil
}

// flushesOf reads what the kernel counts, see Documentation/block/stat.rst.
func flushesOf(dir string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	file := filepath.Join("/sys/dev/block", fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev)), "stat")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	const flushes = 15
	fields := strings.Fields(string(text))
	if len(fields) <= flushes {
		return 0, fmt.Errorf("%s has %d fields; flushes are counted from Linux 5.5 on", file, len(fields))
	}
	return strconv.ParseUint(fields[flushes], 10, 64)
}
