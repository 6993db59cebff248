// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	instruments = 20
	// meanSize of a file, in bytes: 53 MB of 37,655.
	meanSize = 1408
)

// tree is a folder with a folder for each instrument.
type tree struct {
	dir   string
	paths []string
	bytes int64
	// edited are the instruments with the last changes, and again the files that changed since the tree was made.
	edited, again map[string]bool
	// changes counts them: each changes other files.
	changes int
}

// newTree writes files that were last modified on days that end yesterday.
func newTree(dir string, files, days int) (*tree, error) {
	t := &tree{dir: filepath.Join(dir, "tree"), edited: map[string]bool{}, again: map[string]bool{}}
	random := rand.New(rand.NewPCG(1, 2))
	first := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	for i := range files {
		instrument := name(i % instruments)
		of, each := i/instruments, (files+instruments-1)/instruments
		at := first.Add(time.Duration(of) * time.Duration(days) * 24 * time.Hour / time.Duration(each))
		path := filepath.Join(instrument, at.Format("2006/01/02"), fmt.Sprintf("%s_%s_%05d.txt", instrument, at.Format("150405"), of))
		if err := t.write(path, content(random, i), at); err != nil {
			return nil, err
		}
		t.paths = append(t.paths, path)
		t.edited[instrument] = true
	}
	return t, nil
}

func name(i int) string { return fmt.Sprintf("inst-%02d", i) }

// content is half text, as of a log or a page, and half noise, as of a picture.
func content(random *rand.Rand, of int) []byte {
	size := meanSize/2 + random.IntN(meanSize)
	var b bytes.Buffer
	for line := 0; b.Len() < size/2; line++ {
		fmt.Fprintf(&b, "record %d of file %d: field %s nT\n", line, of, strconv.Itoa(50_000+random.IntN(500)))
	}
	for b.Len() < size {
		b.WriteByte(byte(random.Uint32()))
	}
	return b.Bytes()[:size]
}

func (t *tree) write(path string, data []byte, at time.Time) error {
	file := filepath.Join(t.dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return err
	}
	t.bytes += int64(len(data))
	return os.Chtimes(file, at, at)
}

// change gives some files other bytes, of other length, now.
func (t *tree) change(n int) error {
	t.edited = map[string]bool{}
	t.changes++
	for i := range n {
		path := t.paths[(i*len(t.paths)/n+t.changes*7919)%len(t.paths)]
		text := strings.Repeat(fmt.Sprintf("edited as change %d\n", t.changes), 70+t.changes)
		if err := t.write(path, []byte(text), time.Now().Add(-10*time.Second)); err != nil {
			return err
		}
		t.edited[strings.SplitN(path, "/", 2)[0]], t.again[path] = true, true
	}
	return nil
}

// make makes the files of the tree again, each under another name first, from memory: the minimum that a copy must do.
func (t *tree) make(dir string) (took time.Duration, err error) {
	type file struct {
		path string
		data []byte
		at   time.Time
	}
	all := make([]file, len(t.paths))
	for i, path := range t.paths {
		info, err := os.Stat(filepath.Join(t.dir, path))
		if err == nil {
			all[i] = file{path: filepath.Join(dir, path), at: info.ModTime()}
			all[i].data, err = os.ReadFile(filepath.Join(t.dir, path))
		}
		if err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	made := map[string]bool{}
	for _, f := range all {
		if in := filepath.Dir(f.path); !made[in] {
			if err := os.MkdirAll(in, 0o755); err != nil {
				return 0, err
			}
			made[in] = true
		}
		if err := errors.Join(os.WriteFile(f.path+"~", f.data, 0o644), os.Chtimes(f.path+"~", f.at, f.at), os.Rename(f.path+"~", f.path)); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// compare says whether a copy has all files as they are now; each fiftieth is read. A copy of
// the archive has them as n/<path>, and those that changed as v/2/<path>.
func (t *tree) compare(copied string, archive bool) error {
	for i, path := range t.paths {
		instrument, rest, _ := strings.Cut(path, "/")
		at := filepath.Join(copied, path)
		if archive {
			at = filepath.Join(copied, instrument, map[bool]string{false: "n", true: "v/2"}[t.again[path]], rest)
		}
		want, err := os.Stat(filepath.Join(t.dir, path))
		if err != nil {
			return err
		}
		got, err := os.Stat(at)
		if err != nil || got.Size() != want.Size() {
			return fmt.Errorf("the copy's %s is not the file: %w", path, err)
		}
		if i%50 != 0 {
			continue
		}
		a, err := os.ReadFile(filepath.Join(t.dir, path))
		if err != nil {
			return err
		}
		if b, err := os.ReadFile(at); err != nil || !bytes.Equal(a, b) {
			return fmt.Errorf("the copy's %s has other bytes: %w", path, err)
		}
	}
	return nil
}
