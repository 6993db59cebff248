// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// In a power cut what was synced stays, again after a second one, and what was not is lost; of a folder whose syncs do nothing all is.
func TestPowerIsCut(t *testing.T) {
	image, dir := Disk(t)
	writeSynced(t, filepath.Join(dir, "synced"))
	again, after := CutPowerOf(t, image)
	Eject(t, dir)
	for _, dir := range []string{after, CutPower(t, again)} {
		if gone(t, filepath.Join(dir, "synced")) > 0 {
			t.Error("what was synced is lost")
		}
	}
	Control(t, func(t *testing.T) (string, int) {
		image, dir := Disk(t)
		write(t, filepath.Join(dir, "unsynced"), []byte("text"))
		return dir, gone(t, filepath.Join(CutPower(t, image), "unsynced"))
	})
	Control(t, func(t *testing.T) (string, int) {
		image, dir := Disk(t)
		view, upper := Unsynced(t, dir)
		writeSynced(t, filepath.Join(view, "in-vain"))
		return dir, gone(t, filepath.Join(CutPower(t, image), filepath.Base(upper), "in-vain"))
	})
}

// gone is 1 where a file is not there with what was written, and 0 where it is.
func gone(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if string(text) == "text" {
		return 0
	}
	return 1
}

func writeSynced(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		t.Fatal(err)
	}
}
