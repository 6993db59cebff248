// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const diskSize = 128 << 20

// Disk makes a file system of 128 MiB in a file and mounts it; the test ends with
// it unmounted. Without the privilege for that the test is skipped.
func Disk(t testing.TB) (image, dir string) { return DiskOf(t, diskSize) }

// DiskOf is Disk with so many bytes.
func DiskOf(t testing.TB, size int64) (image, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a power cut needs a loop device, which needs root (CAP_SYS_ADMIN)")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("a power cut needs", tool)
		}
	}
	image = filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return image, mount(t, image)
}

// mount mounts an image; commit=300 and noinit_itable keep the file system from writing by itself what was not synced.
func mount(t testing.TB, image string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop,commit=300,noinit_itable", image, dir).CombinedOutput(); err != nil {
		t.Skipf("a power cut needs a loop device (CAP_SYS_ADMIN and /dev/loop*): mount: %v: %s", err, out)
	}
	unmountAtEnd(t, dir)
	countFlushes(dir)
	return dir
}

// mounted has what unmounts each folder that is mounted.
var mounted sync.Map

func unmountAtEnd(t testing.TB, dir string) {
	unmount := sync.OnceFunc(func() {
		mounted.Delete(dir)
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	mounted.Store(dir, unmount)
	t.Cleanup(unmount)
}

// Eject unmounts the folder of a Disk, or of Unsynced, before the test ends: a machine has few loop devices.
func Eject(t testing.TB, dir string) {
	t.Helper()
	unmount, ok := mounted.Load(dir)
	if !ok {
		t.Fatalf("%s is not mounted", dir)
	}
	unmount.(func())()
}

// Unsynced returns a folder whose files lie in a folder of a Disk, which is also returned, and whose syncs do nothing (overlayfs mounted as
// volatile): what programs store there looks safe to them, and is not. The test ends with it unmounted.
func Unsynced(t testing.TB, disk string) (dir, upper string) {
	t.Helper()
	dir, upper = t.TempDir(), filepath.Join(disk, "upper")
	work := filepath.Join(disk, "work")
	for _, folder := range []string{upper, work} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", t.TempDir(), upper, work)
	if out, err := exec.Command("mount", "-t", "overlay", "overlay", "-o", options, dir).CombinedOutput(); err != nil {
		t.Skipf("a disk without syncs needs overlayfs with the option volatile (Linux 5.10, CAP_SYS_ADMIN): mount: %v: %s", err, out)
	}
	unmountAtEnd(t, dir)
	return dir, upper
}

// CutPower returns the folder of a Disk as it is after the power went at this
// moment: what the file system has not sent to the image is lost.
func CutPower(t testing.TB, image string) string {
	t.Helper()
	_, dir := CutPowerOf(t, image)
	return dir
}

// CutPowerOf is CutPower that also returns the image of the disk that has what is left: its power can be cut, too.
func CutPowerOf(t testing.TB, image string) (copied, dir string) {
	t.Helper()
	copied = filepath.Join(t.TempDir(), "disk")
	for range 20 { // a copy during which the disk changed is made again
		f, err := os.Create(copied)
		if err != nil {
			t.Fatal(err)
		}
		first := copyOf(t, image, f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(first, copyOf(t, image, nil)) {
			return copied, mount(t, copied)
		}
	}
	t.Fatal("the disk never stood still")
	return "", ""
}

// copyOf copies an image, except its holes, which are most of it, and returns a SHA-256 of what it copied and where the data lies.
func copyOf(t testing.TB, image string, to *os.File) []byte {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	var end int64
	for {
		begin, err := f.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole
			break
		}
		if err == nil {
			end, err = f.Seek(begin, unix.SEEK_HOLE)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(h, begin, end)
		var into io.Writer = h
		if to != nil {
			into = io.MultiWriter(h, io.NewOffsetWriter(to, begin))
		}
		if _, err := io.Copy(into, io.NewSectionReader(f, begin, end-begin)); err != nil {
			t.Fatal(err)
		}
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && to != nil {
		err = to.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.Sum(nil)
}
