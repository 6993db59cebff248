// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/testenv"
)

// screen is what was written to a terminal, or to a log.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) await(t *testing.T, want string) {
	t.Helper()
	is := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.text.String()
	}
	for range testenv.Attempts() {
		if strings.Contains(is(), want) {
			return
		}
	}
	t.Fatalf("%q does not come:\n%q", want, is())
}

// terminal opens a terminal of 40 columns.
func terminal(t *testing.T) (*os.File, *screen) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 40})
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	s := &screen{}
	go func() { _, _ = io.Copy(s, master) }()
	return f, s
}

// TestTerminal: a bar within the terminal's width, lines above it, and nothing of it at the end.
func TestTerminal(t *testing.T) {
	out, shown := terminal(t)
	p := Start(out, false, nil)
	p.Set(0, 0, "looking")
	shown.await(t, clearLine+"looking")
	p.Set(0, 4, "0 of 4 lists")
	shown.await(t, clearLine+"["+strings.Repeat(" ", barWidth)+"] 0 of 4 lists")
	p.Set(1, 4, "1 of 4 lists")
	shown.await(t, clearLine+"[======                  ] 1 of 4 lists"[:39])
	if _, err := fmt.Fprintln(p.Above(out), "Missing a"); err != nil {
		t.Fatal(err)
	}
	shown.await(t, clearLine+"Missing a\r\n"+clearLine)
	p.Stop()
	p.Stop()
	fmt.Fprintln(out, "the end")
	shown.await(t, clearLine+"the end\r\n")
	for line := range strings.SplitSeq(shown.text.String(), clearLine) {
		if len(line) > 39 {
			t.Errorf("wider than the terminal: %q", line)
		}
	}
}

// TestLog: lines without a terminal, with the remaining time if it is known.
func TestLog(t *testing.T) {
	log := &screen{}
	p := Start(log, false, nil)
	defer p.Stop()
	if _, err := io.ReadAll(p.Reader(strings.NewReader(strings.Repeat("x", 2048)), 1<<20)); err != nil {
		t.Fatal(err)
	}
	log.await(t, "2.0 KiB of 1.0 MiB\n")
	p.Set(1<<19, 1<<20, "half")
	log.await(t, "half; ")
	p.Say("waiting for %s", "another")
	log.await(t, "s left\nwaiting for another\n")
}

// TestSilent: a silent progress shows nothing.
func TestSilent(t *testing.T) {
	var log screen
	p := Start(&log, true, func() State { return State{Text: "shown"} })
	p.Set(1, 2, "half")
	p.Say("said")
	p.Stop()
	if _, err := io.WriteString(p.Above(&log), "the result\n"); err != nil || log.text.String() != "the result\n" {
		t.Errorf("%v: %q", err, log.text.String())
	}
}
