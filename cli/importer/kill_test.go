// SPDX-License-Identifier: Apache-2.0

//go:build linux

package importer

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestKilled: an import that is killed at any point continues from another machine, which has nothing but the archive, and everything is
// listed and counted once.
func TestKilled(t *testing.T) {
	const n = 1500
	for name, inPlace := range map[string]bool{"folder": false, "in place": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, dir := newLab(t), t.TempDir()
			of := frames(n)
			tree, more := dir, []string{}
			if inPlace {
				l.putObjects(prefix, of...)
				tree, more = "archive/"+prefix, []string{"--in-place", "--settle", "0s"}
			} else {
				writeFiles(t, dir, of...)
			}
			for _, until := range []uint64{n / 5, n / 2} {
				l.killAt(until, l.args(tree, more...))
			}
			before := l.announcedSoFar()
			if before >= n {
				t.Fatalf("all %d were announced before the kill", n)
			}
			if last := l.must(tree, more...); last.Registered+last.Unchanged != n || last.Registered == 0 || last.Unchanged < n/5 {
				t.Errorf("of %d, %d before the kills: %+v", n, before, last.Summary)
			}
			all := l.await(n)
			l.compareLedger(all)
			for _, f := range of {
				key := placeKey(f)
				if !inPlace {
					key = namedKey(f)
				}
				if len(all[key]) != 1 {
					t.Errorf("%s is listed %d times", key, len(all[key]))
				}
			}
			l.must(tree, more...).wants(t, Summary{Seen: n, Unchanged: n})
		})
	}
}

// announcedSoFar is how many notices the stream has taken.
func (l *lab) announcedSoFar() uint64 {
	l.t.Helper()
	notices, err := l.js.Stream(l.t.Context(), wire.NoticeStream(site))
	if err != nil {
		l.t.Fatal(err)
	}
	return notices.CachedInfo().State.LastSeq
}

// killAt starts an import and kills it when so many are announced.
func (l *lab) killAt(announced uint64, args []string) {
	l.t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--parallel", "1")...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	// The pause is short and stays so: the import must not end before it is killed.
	for deadline := time.Now().Add(3 * time.Minute); l.announcedSoFar() < announced; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			l.t.Fatalf("after a minute %d are announced, not %d\n%s", l.announcedSoFar(), announced, out.String())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		l.t.Fatalf("it ended before it was killed\n%s", out.String())
	}
}

// TestUnreadable: a file that may not be read is reported, and the others are imported.
func TestUnreadable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a file that another user may not read")
	}
	l, dir := newLab(t), t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the folder of all of this test's folders
		t.Fatal(err)
	}
	of := frames(3)
	writeFiles(t, dir, of...)
	if err := os.Chmod(filepath.Join(dir, of[1].name), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "locked"), 0o700); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "import") // others may not look where go test keeps its own
	copyProgram(t, program)
	cmd := exec.Command(program, append(l.args(dir), "--quiet")...)
	cmd.Env, cmd.Dir = append(os.Environ(), asProgram+"=1"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, err := cmd.Output()
	if err == nil {
		t.Error("it ended well")
	}
	t.Logf("%v\n%s", err, out)
	report, _, _ := strings.Cut(string(out), "Error:")
	got := readResult(t, report)
	if got.reasons[of[1].name] != Unreadable || got.reasons["locked/"] != Unreadable || len(got.reasons) != 2 || got.Registered != 2 {
		t.Errorf("%v, %+v\n%s", got.reasons, got.Summary, out)
	}
	l.compareLedger(l.await(2))
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, from); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
