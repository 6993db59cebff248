// SPDX-License-Identifier: Apache-2.0

//go:build linux

package queue

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// asFiller makes the test binary fill a queue, and say what is in it.
const asFiller = "SUBSTORM_TEST_QUEUE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asFiller); dir != "" {
		if err := fillForEver(dir, os.Getenv(asFiller+"_UNSAFE") != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fillForEver adds objects, some by copy and some by move, and removes some. It
// prints a line before it begins, and after it ended, each of these.
func fillForEver(dir string, unsafe bool) error {
	q, err := Open(Config{Dir: filepath.Join(dir, "queue"), Unsafe: unsafe})
	if err != nil {
		return err
	}
	watched := filepath.Join(dir, "watched")
	if err := os.Mkdir(watched, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	random := rand.NewChaCha8([32]byte(sumOf([]byte(time.Now().String()))))
	var owed []Entry
	for n := 0; ; n++ {
		var sources []Source
		for i := range 1 + rand.IntN(5) {
			data := make([]byte, 1+rand.IntN(100_000))
			_, _ = random.Read(data)
			s := Source{Name: fmt.Sprintf("%x", sumOf(data)), Open: text(string(data)), Observed: time.Now()}
			if i%2 == 0 {
				s.Path, s.Open, s.Move = filepath.Join(watched, s.Name), nil, rand.IntN(2) == 0
				if err := os.WriteFile(s.Path, data, 0o640); err != nil {
					return err
				}
				info, err := os.Stat(s.Path)
				if err != nil {
					return err
				}
				s.Observed = info.ModTime()
				s.Key = KeyOf(s.Path, info.Size(), s.Observed, 0)
			}
			sources = append(sources, s)
		}
		entries, err := q.Add(sources...)
		if err != nil {
			return err
		}
		var said bytes.Buffer
		for _, e := range entries {
			fmt.Fprintln(&said, "queued", e.Name)
		}
		owed = append(owed, entries...)
		for len(owed) > 20 {
			e := owed[0]
			owed = owed[1:]
			fmt.Fprintln(&said, "receipt", e.Name)
			if _, err := os.Stdout.Write(said.Bytes()); err != nil {
				return err
			}
			said.Reset()
			if err := q.Done(e); err != nil {
				return err
			}
		}
		if _, err := os.Stdout.Write(said.Bytes()); err != nil {
			return err
		}
	}
}

func sumOf(data []byte) []byte { s := sha256.Sum256(data); return s[:] }

// runIncarnation runs a filler until some time after it said first that something is queued, and
// returns what it said was queued and has no receipt.
func runIncarnation(t *testing.T, dir string, unsafe bool, d time.Duration) map[string]bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asFiller+"="+dir)
	if unsafe {
		cmd.Env = append(cmd.Env, asFiller+"_UNSAFE=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var kill sync.Once
	owed := map[string]bool{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, name, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "queued":
			kill.Do(func() { time.AfterFunc(d, func() { _ = cmd.Process.Kill() }) })
			owed[name] = true
		case "receipt":
			delete(owed, name)
		}
	}
	_ = cmd.Wait()
	return owed
}

// missing returns how many objects that are owed are not there, whole.
func missing(t *testing.T, dir string, owed map[string]bool) int {
	t.Helper()
	q, err := Open(Config{Dir: dir})
	if err != nil {
		t.Log(err)
		return len(owed)
	}
	defer q.Close()
	found := map[string]bool{}
	for _, e := range q.Waiting() {
		f, err := q.Open(e)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if sum := sumOf(data); hex.EncodeToString(sum) == e.Name && e.Matches([32]byte(sum)) {
			found[e.Name] = true
		}
	}
	n := 0
	for name := range owed {
		if !found[name] {
			n++
		}
	}
	return n
}

// Killed again and again: everything that was queued is there, until its receipt.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	owed := map[string]bool{}
	for range 5 {
		// An incarnation does not touch what the one before it left.
		for name := range runIncarnation(t, dir, false, time.Duration(rand.IntN(300))*time.Millisecond) {
			owed[name] = true
		}
		if n := missing(t, filepath.Join(dir, "queue"), owed); n > 0 {
			t.Fatalf("of %d objects without a receipt %d are gone", len(owed), n)
		}
	}
	if len(owed) == 0 {
		t.Error("nothing was queued: the test tests nothing")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "queue", folderIncoming)); err != nil || len(left) > 0 {
		t.Errorf("copies left behind: %v, %v", left, err)
	}
}

// The power goes at a random moment: what was queued and has no receipt is there
// after it, whole. With the syncs left out it is not: so the test would see.
func TestPowerCut(t *testing.T) {
	lost := func(t *testing.T, unsafe bool) (dir string, all, gone int) {
		disk, dir := testenv.Disk(t)
		// Killed first, so that nothing is promised after the cut.
		owed := runIncarnation(t, dir, unsafe, time.Duration(300+rand.IntN(400))*time.Millisecond)
		gone = missing(t, filepath.Join(testenv.CutPower(t, disk), "queue"), owed)
		t.Logf("%d owed, %d lost", len(owed), gone)
		return dir, len(owed), gone
	}
	for range 3 {
		if _, all, gone := lost(t, false); all == 0 || gone > 0 {
			t.Errorf("of %d objects without a receipt %d are lost in a power cut", all, gone)
		}
	}
	testenv.Control(t, func(t *testing.T) (string, int) {
		dir, _, gone := lost(t, true)
		return dir, gone
	})
}
