// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mirror_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/cli/mirror"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// mirrored makes a mirror with an object on each of two days.
func mirrored(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := f.Writer()
	known := plan.Known{Days: map[wire.Day]plan.KnownDay{}}
	for _, day := range []wire.Day{"2015-03-17", "2015-03-18"} {
		body := []byte(day)
		at, err := time.Parse(time.DateOnly, string(day))
		if err != nil {
			t.Fatal(err)
		}
		line := plan.Line{Entry: mirrorindex.Entry{Path: string(day), Size: int64(len(body)), Digest: sha256.Sum256(body), ID: string(day), ReceivedAt: at}, Held: true}
		if err := errors.Join(w.Put("camera", &line.Entry, body), f.SetLines("camera", day, []plan.Line{line})); err != nil {
			t.Fatal(err)
		}
		known.Days[day] = plan.KnownDay{Tag: "1", Objects: 1, Bytes: line.Size}
	}
	f.SetInstrument("camera", "1")
	if err := errors.Join(w.Close(), f.SetKnown("camera", known), f.SetETag("1"), f.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func verify(t *testing.T, dir string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := mirror.Command()
	c.SetArgs([]string{"verify", dir, "-q"})
	c.SetOut(&out)
	c.SetErr(t.Output())
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestVerify: problems of a mirror are reported, its lists included, and what to do.
func TestVerify(t *testing.T) {
	t.Parallel()
	const list = ".substorm/camera/2015-03-17.jsonl.zst"
	for name, c := range map[string]struct {
		harm      func(dir string) error
		out, fail string
	}{
		"all is right": {func(string) error { return nil }, "2 objects, 20 B, are what the lists say", ""},
		"an object is lost": {func(dir string) error { return os.Remove(filepath.Join(dir, "camera/2015-03-17")) },
			"camera/2015-03-17: ", "1 objects of"},
		"a list is lost": {func(dir string) error { return os.Remove(filepath.Join(dir, list)) },
			"the list of 2015-03-17 is lost, and 1 objects of that day should be here", "1 lists of"},
		"a list is damaged": {func(dir string) error { return os.WriteFile(filepath.Join(dir, list), []byte("no list"), 0o600) },
			"the list of a day cannot be read", "1 lists of"},
		"the tags are lost": {func(dir string) error { return os.Remove(filepath.Join(dir, ".substorm/camera/days.json")) },
			".substorm/camera: days.json is lost", "1 lists of"},
		"all of an Instrument is lost": {func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, ".substorm/camera")), os.RemoveAll(filepath.Join(dir, "camera")))
		}, ".substorm/camera: days.json is lost", "1 lists of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := mirrored(t)
			if err := c.harm(dir); err != nil {
				t.Fatal(err)
			}
			out, err := verify(t, dir)
			if !strings.Contains(out, c.out) {
				t.Errorf("%s", out)
			}
			switch {
			case c.fail == "" && err != nil:
				t.Error(err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail) || !strings.Contains(err.Error(), "substorm mirror pull --force")):
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := verify(t, t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not a mirror") {
		t.Errorf("an empty folder: %v", err)
	}
}
