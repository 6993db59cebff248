// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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

// mount mounts an image; commit=300 keeps the file system from writing by itself
// what nobody asked it to.
func mount(t testing.TB, image string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop,commit=300", image, dir).CombinedOutput(); err != nil {
		t.Skipf("a power cut needs a loop device (CAP_SYS_ADMIN and /dev/loop*): mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// CutPower returns the folder of a Disk as it is after the power went at this
// moment: what the file system has not sent to the image is lost.
func CutPower(t testing.TB, image string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "disk")
	for range 20 { // a copy during which the disk changed is made again
		f, err := os.Create(copied)
		if err != nil {
			t.Fatal(err)
		}
		first := copyOf(t, image, f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(first, copyOf(t, image, io.Discard)) {
			return mount(t, copied)
		}
	}
	t.Fatal("the disk never stood still")
	return ""
}

// copyOf copies a file and returns its SHA-256.
func copyOf(t testing.TB, file string, to io.Writer) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(h, to), f); err != nil {
		t.Fatal(err)
	}
	return h.Sum(nil)
}
