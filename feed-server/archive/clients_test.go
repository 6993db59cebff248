// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// run runs a client that people have, in a folder of its own, and returns what it
// says. It must succeed, unless may says otherwise.
func run(t *testing.T, dir string, may func(exit int) bool, name string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed: apt-get install %s", name, name)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "no_proxy=*", "http_proxy=", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil && (may == nil || !may(cmd.ProcessState.ExitCode())) {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// mirrored is an instrument's archive of some days, and what is in it by path.
func (l *lab) mirrored(instrument string) map[string]string {
	l.t.Helper()
	all := map[string]string{"readme.txt": "what this is\n", "2015/03/19/with space & more.jpg": noise(300), "2015/day.csv": lines(50_000)}
	for day := 17; day <= 18; day++ {
		for i := range 5 {
			all[fmt.Sprintf("2015/03/%d/image-%d.jpg", day, i)] = noise(1000*day + i)
		}
	}
	for path, body := range all {
		l.put(instrument, path, body, func(r *wire.Record) {
			if strings.HasSuffix(path, ".csv") {
				r.MediaType = "text/csv"
			}
		})
	}
	return all
}

// files are the files below a folder, by path; pages that a client keeps are left out.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "index.html") || d.Name() == "robots.txt" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all[name] = string(data)
		info, statErr := d.Info()
		if statErr != nil || !info.ModTime().Equal(storm.Truncate(time.Second)) && !strings.Contains(name, "added") {
			t.Errorf("%s is of %v, want %v", name, info.ModTime(), storm)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// objects are the lines of a log that are about objects, with one status.
func objects(lines []string, method string, status int) []string {
	return slices.DeleteFunc(lines, func(line string) bool {
		return !strings.HasPrefix(line, fmt.Sprintf("%s %d ", method, status)) || strings.HasSuffix(line, "/") || strings.HasSuffix(line, "robots.txt")
	})
}

func TestWget(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, wire.InstrumentEntry{Instrument: "readers"})
	for instrument, who := range map[string][]string{camera: nil, "readers": {"--user=anybody", "--password=uni-token"}} {
		want := l.mirrored(instrument)
		dir := t.TempDir()
		for _, how := range [][]string{{"-r", "-N"}, {"-r", "-N", "--no-if-modified-since"}} {
			mirror := func() []string {
				l.log.take()
				run(t, dir, nil, "wget", slices.Concat([]string{"-nv", "-nH", "--cut-dirs=2", "-np"}, how, who, []string{l.url + "/archive/" + instrument + "/"})...)
				return l.log.take()
			}
			mirror()
			if diff := cmp.Diff(want, files(t, dir)); diff != "" {
				t.Fatalf("%v (-want +got):\n%s", how, diff)
			}
			if again := objects(mirror(), "GET", 200); len(again) > 0 {
				t.Errorf("%v fetches again: %v", how, again)
			}
			added := "2015/03/18/added" + how[len(how)-1] + ".jpg"
			want[added] = "added"
			l.put(instrument, added, "added")
			if got := objects(mirror(), "GET", 200); !slices.Equal(got, []string{"GET 200 /archive/" + instrument + "/" + added}) {
				t.Errorf("%v fetches %v, and only %s is new", how, got, added)
			}
		}
		if diff := cmp.Diff(want, files(t, dir)); diff != "" {
			t.Errorf("in the end (-want +got):\n%s", diff)
		}
	}
}

func TestRclone(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, wire.InstrumentEntry{Instrument: "readers"})
	for instrument, who := range map[string]string{camera: "", "readers": "anybody:uni-token@"} {
		want := l.mirrored(instrument)
		dir := t.TempDir()
		sync := func() []string {
			l.log.take()
			run(t, dir, nil, "rclone", "--config", "", "sync", ":http:", filepath.Join(dir, "mirror"),
				"--http-url", strings.Replace(l.url, "://", "://"+who, 1)+"/archive/"+instrument+"/")
			return l.log.take()
		}
		sync()
		if diff := cmp.Diff(want, files(t, filepath.Join(dir, "mirror"))); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if again := objects(sync(), "GET", 200); len(again) > 0 {
			t.Errorf("it fetches again: %v", again)
		}
	}
}

func TestCurl(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	body := noise(100_000)
	l.put(camera, "a.jpg", body)
	dir, at := t.TempDir(), l.url+"/archive/allsky-1/a.jpg"
	curl := func(args ...string) string {
		return run(t, dir, nil, "curl", append([]string{"-sS", "-w", "%{http_code} %{size_download}"}, args...)...)
	}
	file := func() string {
		b, err := os.ReadFile(filepath.Join(dir, "a.jpg"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// The answer to a busted cache is the same.
	for i, want := range []string{"200 100000", "304 0", "304 0"} {
		if got := curl("--etag-save", "tag", "--etag-compare", "tag", "-o", "a.jpg", fmt.Sprintf("%s?t=%d", at, i)); got != want {
			t.Errorf("ask %d: %s, want %s", i, got, want)
		}
	}
	if got := curl("-z", "a.jpg", "-R", "-o", "b.jpg", at); got != "304 0" && got != "200 100000" {
		t.Errorf("by time: %s", got)
	}
	if file() != body {
		t.Error("the file is another")
	}
	if err := os.Truncate(filepath.Join(dir, "a.jpg"), 40_000); err != nil {
		t.Fatal(err)
	}
	if got := curl("-C", "-", "-o", "a.jpg", at); got != "206 60000" || file() != body {
		t.Errorf("resumed: %s", got)
	}
	if got := curl("-r", "5-9", "-o", "a.jpg", at); got != "206 5" || file() != body[5:10] {
		t.Errorf("a range: %s", got)
	}
	l.put(camera, "a.csv", lines(100_000), func(r *wire.Record) { r.MediaType = "text/csv" })
	for i, want := range []string{"200 ", "304 0"} { // compressed
		if got := curl("--compressed", "--etag-save", "text", "--etag-compare", "text", "-o", "a.csv", l.url+"/archive/allsky-1/a.csv"); !strings.HasPrefix(got, want) || got == "200 100000" {
			t.Errorf("text, ask %d: %s, want %s", i, got, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a.csv")); err != nil || string(text) != lines(100_000) {
		t.Errorf("%d bytes of text, %v", len(text), err)
	}
	if got := curl("-I", "-o", "head", "--compressed", l.url+"/archive/allsky-1/"); got != "200 0" {
		t.Errorf("HEAD: %s", got)
	}
	if got := curl("--http1.0", "--compressed", "-o", "page", l.url+"/archive/allsky-1/"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("a page: %s", got)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "page")); err != nil || !strings.Contains(string(page), "a.jpg") {
		t.Errorf("%s %v", page, err)
	}
}
