// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The environment in which this test's program is a process that spools until it is killed, and
// prints on its standard output what is receipted.
const (
	childDir    = "SPOOL_TEST_DIR"
	childFrom   = "SPOOL_TEST_FROM"
	childUnsafe = "SPOOL_TEST_UNSAFE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Println("ended:", spoolForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// spoolForever has eight senders, each with objects of its own, and one goroutine that archives
// some of them. "receipt N" is said once N is safe; "archived N" before it is noted as done, "done
// N" after.
func spoolForever(dir string) error {
	var from uint64
	if _, err := fmt.Sscan(os.Getenv(childFrom), &from); err != nil {
		return err
	}
	s, err := Open(Config{Dir: dir, Size: 1 << 30, SegmentSize: 1 << 20, unsafe: os.Getenv(childUnsafe) != ""})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	number := from
	failed := make(chan error, 16)
	for sender := range uint64(8) {
		go func() {
			for {
				mu.Lock()
				n := number
				number++
				mu.Unlock()
				if err := spoolOne(s, n, sender == 0); err != nil {
					failed <- err
					return
				}
				fmt.Printf("receipt %d\n", n)
			}
		}()
	}
	go func() {
		for {
			e, err := s.Next(context.Background())
			if err == nil && e.Notice.ReceivedAt.Nanosecond()%2 == 0 {
				continue // it waits for the next incarnation
			}
			if err == nil {
				err = e.Verify()
			}
			if err == nil {
				fmt.Printf("archived %d\n", e.Notice.ReceivedAt.Nanosecond())
				err = s.Done(e)
			}
			if err != nil {
				failed <- err
				return
			}
			fmt.Printf("done %d\n", e.Notice.ReceivedAt.Nanosecond())
		}
	}()
	return <-failed
}

func objectOf(n uint64) []byte { return bytesOf(n, int(n*7919%12_000)) }

func spoolOne(s *Spool, n uint64, inParts bool) error {
	data := objectOf(n)
	notice := noticeOf(data, received.Add(time.Duration(n)))
	if !inParts {
		return s.Object(notice, bytes.NewReader(data), int64(len(data)))
	}
	var parts []Place
	for rest := data; len(rest) > 0; {
		chunk := rest[:min(len(rest), 5_000)]
		p, err := s.Part(bytes.NewReader(chunk), int64(len(chunk)))
		if err != nil {
			return err
		}
		parts, rest = append(parts, p), rest[len(chunk):]
	}
	return s.Object(notice, nil, 0, parts...)
}

// said is what a process reported before it was killed.
type said struct {
	receipts       []uint64
	archived, done map[uint64]bool
}

// runIncarnation runs a process for a while, kills it, and returns what it reported.
func runIncarnation(t *testing.T, dir string, from uint64, unsafe bool, after time.Duration) said {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%d", childFrom, from))
	if unsafe {
		cmd.Env = append(cmd.Env, childUnsafe+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := said{archived: map[uint64]bool{}, done: map[uint64]bool{}}
	lines := bufio.NewReader(out)
	var killer *time.Timer
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // a line without its end was not said
		}
		var word string
		var n uint64
		if _, err := fmt.Sscan(line, &word, &n); err != nil {
			t.Fatalf("the process says %q", line)
		}
		switch word {
		case "receipt":
			told.receipts = append(told.receipts, n)
		case "archived":
			told.archived[n] = true
		case "done":
			told.done[n] = true
		}
		if killer == nil { // from its first line on
			killer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended by itself: %v", cmd.ProcessState)
	}
	return told
}

// waiting takes all that a spool holds, whole, and returns the numbers.
func waiting(t *testing.T, dir string) map[uint64]bool {
	t.Helper()
	s, err := Open(Config{Dir: dir, Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[uint64]bool{}
	for {
		e, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		n := uint64(e.Notice.ReceivedAt.Nanosecond())
		content(t, e)
		if e.Notice.Digest != wire.Digest(sha256.Sum256(objectOf(n))) || found[n] {
			t.Fatalf("object %d is another, or twice in the spool", n)
		}
		found[n] = true
	}
	if st := s.Stats(); st.Quarantined != 0 {
		t.Errorf("a kill is no damage: %+v", st)
	}
	return found
}

// A process is killed again and again, at random: what was receipted and is not
// archived is in the spool, whole and once; what is done is not.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	receipted, gone, maybe := map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
	from := uint64(1)
	for round := range 12 {
		told := runIncarnation(t, dir, from, false, time.Duration(rand.IntN(400))*time.Millisecond)
		for _, n := range told.receipts {
			receipted[n] = true
			from = max(from, n+1)
		}
		for n := range told.archived {
			maybe[n] = true
		}
		for n := range told.done {
			gone[n] = true
		}
		found := waiting(t, dir)
		for n := range receipted {
			if !found[n] && !maybe[n] {
				t.Fatalf("round %d: object %d has its receipt and is lost", round, n)
			}
		}
		for n := range gone {
			if found[n] {
				t.Fatalf("round %d: object %d is done and comes again", round, n)
			}
		}
		for n := range found { // one whose receipt was on its way
			from = max(from, n+1)
		}
		t.Logf("round %d: %d receipts, %d done, %d wait", round, len(receipted), len(gone), len(found))
	}
	if len(receipted) < 50 || len(gone) == 0 {
		t.Errorf("only %d receipts and %d done: the test tests little", len(receipted), len(gone))
	}
}
