// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asked is a connection over which a request was sent, and the other side of it. The test's end closes both.
func asked(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	end, theirs := net.Pipe()
	ours = newStallConn(end, 30*time.Second)
	t.Cleanup(func() { _ = errors.Join(ours.Close(), theirs.Close()) })
	go func() { _, _ = theirs.Read(make([]byte, 100)) }()
	if _, err := ours.Write([]byte("get")); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// apart runs the other side until the end of the test, which closes its connection.
func apart(t *testing.T, theirs net.Conn, do func()) {
	var running sync.WaitGroup
	running.Go(do)
	t.Cleanup(func() {
		_ = theirs.Close()
		running.Wait()
	})
}

// send sends so many bytes every so often, until the other end accepts no more or for some hours.
func send(theirs net.Conn, bytes int, every time.Duration) {
	for range 6 * time.Hour / every {
		time.Sleep(every)
		if _, err := theirs.Write(make([]byte, bytes)); err != nil {
			return
		}
	}
	time.Sleep(time.Second) // the other end waits in Read by then: once a pipe is closed, it takes no deadline
	_ = theirs.Close()
}

// An answer that comes byte by byte is given up; one over a thin link, which others share, or that pauses, is not.
func TestSlowAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int
		every time.Duration
		says  string
	}{
		"a byte every 20 seconds":         {1, 20 * time.Second, "bytes per second"},
		"a byte every tenth of a second":  {1, 100 * time.Millisecond, "bytes per second"},
		"nothing for an hour":             {1000, time.Hour, "nothing came"},
		"a sixteenth of 5 kB/s":           {312, time.Second, ""},
		"16 KiB after each 40 seconds":    {16 << 10, 40 * time.Second, ""},
		"half a packet every two seconds": {700, 2 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := asked(t)
				apart(t, theirs, func() { send(theirs, c.bytes, c.every) })
				begun := time.Now()
				_, err := io.Copy(io.Discard, ours)
				if c.says == "" {
					if err != nil {
						t.Errorf("after %s: %v", time.Since(begun), err)
					}
					return
				}
				if !errors.Is(err, ErrUnavailable) || !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("after %s: %v", time.Since(begun), err)
				}
			})
		})
	}
}

// A reader that is slow, as under a limit, and a body that is sent for hours while the answer is waited for, cost nothing.
func TestSlowReaderAndSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := asked(t)
		apart(t, theirs, func() {
			for range 3600 {
				_, _ = theirs.Read(make([]byte, 100))
			}
			send(theirs, 100, time.Second/4)
		})
		answer := make(chan error, 1)
		go func() {
			_, err := ours.Read(make([]byte, 1))
			answer <- err
		}()
		for range 3600 {
			time.Sleep(20 * time.Second)
			if _, err := ours.Write([]byte("part")); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-answer; err != nil {
			t.Fatalf("the answer to a body that was sent slowly: %v", err)
		}
		for range 1000 {
			time.Sleep(time.Minute)
			if _, err := ours.Read(make([]byte, 10)); err != nil {
				t.Fatalf("a reader that is slow: %v", err)
			}
		}
	})
}
