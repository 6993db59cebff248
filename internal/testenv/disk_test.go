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
	view, upper := Unsynced(t, dir)
	writeSynced(t, filepath.Join(dir, "synced"))
	writeSynced(t, filepath.Join(view, "in-vain"))
	write(t, filepath.Join(dir, "unsynced"), []byte("text"))
	for _, name := range []string{filepath.Join(upper, "in-vain"), filepath.Join(dir, "unsynced")} {
		if _, err := os.Stat(name); err != nil {
			t.Fatal(err)
		}
	}
	again, after := CutPowerOf(t, image)
	Eject(t, view)
	Eject(t, dir)
	after2 := CutPower(t, again)
	for _, dir := range []string{after, after2} {
		if text, err := os.ReadFile(filepath.Join(dir, "synced")); err != nil || string(text) != "text" {
			t.Errorf("what was synced: %q, %v", text, err)
		}
		for _, name := range []string{"unsynced", filepath.Join(filepath.Base(upper), "in-vain")} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); len(text) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
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
