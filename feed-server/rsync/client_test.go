// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/rsync"
	"github.com/substorm/substorm/internal/wire"
)

// All that everybody may have comes, with the times of receipt, whatever a client asks
// for on the way; and a second run brings nothing.
func TestCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	for _, how := range [][]string{
		{"-a"}, {"-az"}, {"-az", "--zc=zlibx"}, {"-az", "--zc=zlib"}, {"-a", "--protocol=30"}, {"-a", "--protocol=31"}, {"-az", "--protocol=30"},
		{"-a", "--no-i-r"}, {"-a", "--delete-after", "--delay-updates"}, {"-am", "--delete"}, {"-ac"}, {"-ac", "--cc=md5"}, {"-ac", "--cc=xxh64"}, {"-ac", "--cc=xxh3", "--no-i-r"},
		{"-a", "--partial-dir=.partial"}, {"-a", "--inplace"}, {"-aH"}, {"-a", "--numeric-ids"}, {"-a", "-s"}, {"-a", "--old-args"}, {"-a", "--timeout=60"}, {"-rt", "--size-only"},
	} {
		t.Run(strings.Join(how, " "), func(t *testing.T) {
			dir := t.TempDir()
			copied := func(more ...string) string {
				return l.run(t, 0, slices.Concat(how, more, []string{l.module + "/", dir})...)
			}
			copied()
			if diff := cmp.Diff(want, files(t, dir)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			info, err := os.Stat(filepath.Join(dir, camera, "readme.txt"))
			if err != nil || !info.ModTime().Truncate(time.Second).Equal(noon.Truncate(time.Second)) || info.Mode() != 0o644 {
				t.Errorf("%v %v, %v; want %v", info.ModTime(), info.Mode(), err, noon)
			}
			if out := copied("-i"); out != "" {
				t.Errorf("again: %s", out)
			}
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if counted := slices.Sorted(maps.Keys(l.counted)); !slices.Equal(counted, []string{camera + " Robot", riometer + " Robot"}) || l.counted[camera+" Robot"] < 3<<20 {
		t.Errorf("counted are %v", l.counted)
	}
}

// New objects are transferred, and retracted ones and files that are not of the archive are deleted.
func TestChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	dir := t.TempDir()
	l.run(t, 0, "-a", l.module+"/", dir)
	write(t, filepath.Join(dir, "mine"), "mine")
	write(t, filepath.Join(dir, camera, "2026/mine"), "mine")
	retracted := l.Put(camera, "2026/11/24/image-b.jpg", want[camera+"/2026/11/24/image-b.jpg"], at(noon.Add(time.Second)), func(r *wire.Record) {
		now := time.Now().UTC()
		r.State, r.RetractedAt, r.Reason = wire.StateRetracted, &now, "a test"
	})
	l.Until("it is retracted", func() bool {
		day, err := l.Catalog.Day(t.Context(), camera, wire.DayOf(noon))
		return err == nil && slices.ContainsFunc(day.Records, func(r *wire.Record) bool { return r.ID == retracted.ID && r.State == wire.StateRetracted })
	})
	delete(want, camera+"/2026/11/24/image-b.jpg")
	want[camera+"/new"] = "new"
	l.Wait(l.Put(camera, "new", "new"))
	out := l.run(t, 0, "-ani", "--delete", l.module+"/", dir)
	for _, line := range []string{"*deleting   mine", "*deleting   " + camera + "/2026/mine", "*deleting   " + camera + "/2026/11/24/image-b.jpg", ">f+++++++++ " + camera + "/new"} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("a dry run does not say %q:\n%s", line, out)
		}
	}
	out = l.run(t, 0, "-av", "--stats", "--delete", l.module+"/", dir)
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, line := range []string{"Number of regular files transferred: 1\n", "Number of deleted files: 3 (reg: 3)\n", "Literal data: 3 bytes\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
}

func write(t testing.TB, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree is the content of a folder: files and directories by their paths, and links to nothing else.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && d.IsDir() {
			name += "/"
		}
		all = append(all, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever a client filters and asks for by name, it gets what rsync makes of a folder that
// has the same files.
func TestSameAsFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	all := l.fill()
	plain := t.TempDir()
	for path, body := range all {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(plain, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(plain, path), body)
	}
	names := filepath.Join(t.TempDir(), "names")
	write(t, names, camera+"/readme.txt\n"+riometer+"/day/\n"+camera+"/2026\n"+camera+"/2026/11/with space & größe.jpg\n./"+camera+"/empty\n")
	for _, c := range []struct {
		args  []string
		paths []string
	}{
		{[]string{"-a", "--exclude=*.jpg"}, []string{"/"}},
		{[]string{"-a", "--exclude=/" + camera + "/2026"}, []string{"/"}},
		{[]string{"-a", "--exclude=2026/"}, []string{"/"}},
		{[]string{"-a", "--include=*/", "--include=*.csv", "--exclude=*"}, []string{"/"}},
		{[]string{"-am", "--include=*/", "--include=image-[a-f].jpg", "--exclude=*"}, []string{"/"}},
		{[]string{"-a", "--include=" + camera + "/***", "--exclude=*"}, []string{"/"}},
		{[]string{"-a", "--exclude=**/24/**"}, []string{"/"}},
		{[]string{"-a", "--exclude=11/24/image-?.jpg"}, []string{"/"}},
		{[]string{"-a", "--exclude=11/**.jpg"}, []string{"/"}},
		{[]string{"-a", "-f", "-! *.csv", "-f", "+ */"}, []string{"/" + riometer + "/"}},
		{[]string{"-a", "-f", "H *.csv"}, []string{"/"}},
		{[]string{"-a", "-f", "P *.csv", "--delete"}, []string{"/"}},
		{[]string{"-a", "--exclude=image-[[:alpha:]].jpg", "--exclude=[!a-m].csv"}, []string{"/"}},
		{[]string{"-a", `--exclude=with\ space*`}, []string{"/"}},
		{[]string{"-aF"}, []string{"/"}},
		{[]string{"-a"}, []string{"/" + camera + "/2026/11/24"}},
		{[]string{"-a"}, []string{"/" + camera + "/2026/11/24/", "/" + riometer + "/day/", "/" + riometer + "/day/a.csv"}},
		{[]string{"-a"}, []string{"/" + camera + "/2026/11/with space & größe.jpg", "/" + camera + "/2026/11/-dash"}},
		{[]string{"-a"}, []string{"/" + camera + "/2026/*/24/image-[ab]*", "/rio*/day"}},
		{[]string{"-aR"}, []string{"/" + camera + "/2026/11/24", "/" + riometer + "/day/a.csv"}},
		{[]string{"-aR"}, []string{"/" + camera + "/./2026/11/24/"}},
		{[]string{"-aR", "--no-implied-dirs"}, []string{"/" + camera + "/2026/11/24"}},
		{[]string{"-aR", "--no-i-r"}, []string{"/" + camera + "/2026/11/24", "/" + camera + "/2026/11"}},
		{[]string{"-a"}, []string{"/" + camera + "/2026/../2026/./11/24"}},
		{[]string{"-dt"}, []string{"/" + camera + "/"}},
		{[]string{"-t"}, []string{"/" + camera + "/readme.txt", "/" + camera}},
		{[]string{"-a", "--files-from=" + names}, []string{"/"}},
		{[]string{"-ar", "--files-from=" + names}, []string{"/"}},
		{[]string{"-a", "--files-from=" + names, "--protocol=30"}, []string{"/"}},
		{[]string{"-a", "--files-from=" + names, "--no-R"}, []string{"/"}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			of := func(root string) []string {
				dir := t.TempDir()
				args := slices.Clone(c.args)
				for _, path := range c.paths {
					if found, err := filepath.Glob(root + path); err == nil && len(found) > 0 && strings.Contains(path, "*") { // as the shell does
						args = append(args, found...)
					} else {
						args = append(args, root+path)
					}
				}
				l.run(t, 0, append(args, dir)...)
				return tree(t, dir)
			}
			relative := slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "-aR") })
			from := plain
			if relative { // the path of the folder is not to be in the names
				from += "/."
				for _, path := range c.paths {
					if strings.Contains(path, "/./") {
						from = plain
					}
				}
			}
			if diff := cmp.Diff(of(from), of(l.module)); diff != "" {
				t.Errorf("(-folder +module):\n%s", diff)
			}
		})
	}
}

// Lists show the content without a copy.
func TestList(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill()
	out := l.run(t, 0, "-r", "--list-only", l.module+"/"+camera+"/2026/")
	if strings.Count(out, "image-") != 20 || !strings.Contains(out, "19,000") || !strings.Contains(out, noon.Format("2006/01/02")) {
		t.Error(out)
	}
	if out := l.run(t, 0, l.module); strings.Count(out, "\n") != 3 || !strings.Contains(out, camera) || !strings.Contains(out, riometer) {
		t.Error(out)
	}
}

// Only what was received in the window is in the module.
func TestWindow(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *rsync.Config) { c.Window = 10 * 24 * time.Hour })
	want := l.fill()
	begin := time.Now().UTC().Add(-10 * 24 * time.Hour)
	l.Put(camera, "old/before", "old", at(begin.Add(-time.Hour)))
	l.Put(camera, "old/long/before", "old", at(begin.AddDate(0, -3, 0)))
	want[camera+"/old/behind"] = "in it"
	l.Wait(l.Put(camera, "old/behind", "in it", at(begin.Add(time.Hour))))
	l.List()
	dir := t.TempDir()
	l.run(t, 0, "-a", l.module+"/", dir)
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if out := l.run(t, 23, "-a", l.module+"/"+camera+"/old/before", dir); !strings.Contains(out, "more than 10 days ago") {
		t.Error(out)
	}
}

// Files of several days in one folder come once each, whatever their names, and of one that
// was sent again the newer.
func TestDaysInOneFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := map[string]string{}
	for i := range 300 {
		name, body := fmt.Sprintf("n/%x", noise(fmt.Sprint(i), 4)), noise(fmt.Sprint(i), 10*i)
		want[name] = body
		l.Put(camera, name, body, at(noon.AddDate(0, 0, -i%5).Add(time.Duration(i)*time.Second)))
	}
	older := l.Put(camera, "n/again", "older", at(noon.AddDate(0, 0, -4)))
	want["n/again"] = "newer"
	last := l.Put(camera, "n/again", "newer", at(noon.AddDate(0, 0, -1)), func(r *wire.Record) {
		r.Key, r.Version, r.Supersedes = wire.NamedKey(archivetest.Site, camera, "n/again", 2), 2, older.ID
	})
	l.Wait(last)
	l.List()
	for _, how := range []string{"-a", "-ac"} {
		dir := t.TempDir()
		l.run(t, 0, how, l.module+"/"+camera+"/", dir)
		if diff := cmp.Diff(want, files(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
		if out := l.run(t, 0, how+"i", l.module+"/"+camera+"/", dir); out != "" {
			t.Errorf("%s again: %s", how, out)
		}
	}
}

// Objects that are not public are not there, by whatever name a client asks for them.
func TestHidden(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill()
	for _, path := range []string{hidden, hidden + "/", hidden + "/secret", fresh, fresh + "/new", fresh + "/new/secret"} {
		if out := l.run(t, 23, "-a", l.module+"/"+path, t.TempDir()); !strings.Contains(out, "nothing public is here") {
			t.Errorf("%s: %s", path, out)
		}
	}
	for _, pattern := range []string{"*", "*/*", "hid*/secret", "fre*/n*/*"} {
		dir := t.TempDir()
		l.run(t, 0, "-a", "--ignore-missing-args", l.module+"/"+pattern, dir)
		if all := tree(t, dir); slices.ContainsFunc(all, func(name string) bool {
			return strings.Contains(name, "secret") || strings.Contains(name, hidden) || strings.Contains(name, fresh)
		}) {
			t.Errorf("%s: %q", pattern, all)
		}
	}
	s := *l.Snapshot()
	s.Instruments = maps.Clone(s.Instruments)
	in := s.Instruments[camera]
	in.Access = archivetest.Restricted
	s.Instruments[camera] = in
	l.Set(&s)
	if out := l.run(t, 0, l.module); strings.Contains(out, camera) {
		t.Error(out)
	}
}

// Nothing can be written, and what is not understood is refused with what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill()
	mine := filepath.Join(t.TempDir(), "mine")
	write(t, mine, "mine")
	for _, c := range []struct {
		exit int
		says string
		args []string
	}{
		{1, "is read only", []string{"-a", mine, l.module + "/"}},
		{12, "is read only", []string{"-a", "--protocol=30", mine, l.module + "/"}},
		{5, "rsync 3.0.0 or newer", []string{"-a", "--protocol=29", l.module + "/", t.TempDir()}},
		{5, `there is no module "other"`, []string{"-a", strings.TrimSuffix(l.module, archivetest.Site) + "other/", t.TempDir()}},
		{4, "leave out -X", []string{"-aX", l.module + "/", t.TempDir()}},
		{4, "leave out -A", []string{"-aA", l.module + "/", t.TempDir()}},
		{4, "leave out -C", []string{"-aC", l.module + "/", t.TempDir()}},
		{4, "leave out --remove-source-files", []string{"-a", "--remove-source-files", l.module + "/", t.TempDir()}},
		{4, `"sha1" is not known`, []string{"-a", "--checksum-choice=sha1", l.module + "/", t.TempDir()}},
		{4, `"lz4" is not known`, []string{"-az", "--compress-choice=lz4", l.module + "/", t.TempDir()}},
	} {
		if out := l.run(t, c.exit, c.args...); !strings.Contains(out, c.says) {
			t.Errorf("%v does not say %q:\n%s", c.args, c.says, out)
		}
	}
}

// Checksums of files are kept, so that a client that asks again has nothing read; what is read for one address is bounded.
func TestSumsAreKept(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill()
	args := []string{"-rc", "--list-only", l.module + "/"}
	l.run(t, 0, args...)
	once := l.counter("substorm_rsync_summed_bytes_total")
	if once == 0 {
		t.Fatal("nothing was read")
	}
	for range 2 {
		l.run(t, 0, args...)
	}
	if is := l.counter("substorm_rsync_summed_bytes_total"); is != once {
		t.Errorf("%v bytes were read for the first client, %v for three", once, is)
	}
	other := newLab(t)
	other.fill()
	other.server.BoundSums(once / 2)
	out := other.run(t, 23, append(args[:2:2], other.module+"/")...)
	if is := other.counter("substorm_rsync_summed_bytes_total"); is > once || !strings.Contains(out, "without --checksum") {
		t.Errorf("%v bytes were read, and the client is answered %s", is, out)
	}
	other.run(t, 0, "-r", "--list-only", other.module+"/")
}

// An object and a folder of one name: one of them comes, and the client ends with 23 and names the other.
func TestFileAndFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(camera, "clash", "a file", at(noon))
	l.Wait(l.Put(camera, "clash/x.txt", "in a file", at(noon.AddDate(0, 0, 1))))
	l.List()
	want := map[string]string{camera + "/clash/x.txt": "in a file"}
	for _, how := range []string{"-a", "-ac", "--no-i-r -a", "--protocol=30 -a", "--delete -a"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "mine"), "mine")
		out := l.run(t, 23, append(strings.Fields(how), l.module+"/", dir)...)
		if !strings.Contains(out, `1 objects are left out, such as "`+camera+`/clash"`) {
			t.Errorf("%s: %s", how, out)
		}
		got := files(t, dir)
		if deleted := got["mine"] == ""; deleted != strings.Contains(how, "--delete") {
			t.Errorf("%s: deleted %t", how, deleted)
		}
		delete(got, "mine")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
	dir := t.TempDir()
	l.run(t, 0, "-a", l.module+"/"+camera+"/clash", dir)
	if diff := cmp.Diff(map[string]string{"clash": "a file"}, files(t, dir)); diff != "" {
		t.Errorf("by its path (-want +got):\n%s", diff)
	}
	for _, named := range [][]string{{"clash", "clash/x.txt"}, {"clash/x.txt", "clash"}} {
		list := filepath.Join(t.TempDir(), "list")
		write(t, list, strings.Join(named, "\n")+"\n")
		dir := t.TempDir()
		if out := l.run(t, 23, "-a", "--files-from="+list, l.module+"/"+camera+"/", dir); !strings.Contains(out, "1 objects are left out") || len(files(t, dir)) != 1 {
			t.Errorf("%q: %s%v", named, out, files(t, dir))
		}
	}
}

// An object that no file can be named as ends a client with 23 where it asks for the object, and not where its filter excludes it.
func TestExcludedIsNotLeftOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	long := strings.Repeat("n", 256)
	stored := func(key string) func(*wire.Record) {
		return func(r *wire.Record) { r.Key = wire.NamedKey(archivetest.Site, camera, key, 1) }
	}
	l.Put(camera, "a/"+long+".tmp", "no file", at(noon), stored("1"))
	l.Put(camera, "a/"+long+"/x.dat", "in no folder", at(noon), stored("2"))
	l.Wait(l.Put(camera, "a/b.jpg", "a file", at(noon)))
	l.List()
	for how, code := range map[string]int{
		"-a":                                 23,
		"-a --exclude=*.tmp":                 23, // and the other
		"-a --exclude=*.tmp --exclude=*.dat": 0,
		"-a --exclude=*.tmp --exclude=nnn*/": 0,
		"-a --include=*/ --include=*.jpg --exclude=*": 0,
		"-a --exclude=a/n*":                           0,
	} {
		dir := t.TempDir()
		l.run(t, code, append(strings.Fields(how), l.module+"/", dir)...)
		if diff := cmp.Diff(map[string]string{camera + "/a/b.jpg": "a file"}, files(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
}
