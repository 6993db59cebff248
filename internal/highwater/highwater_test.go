// SPDX-License-Identifier: Apache-2.0

package highwater

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/boottime"
)

const year = 365 * 24 * time.Hour

func open(t *testing.T, dir string, now time.Time) *Mark {
	t.Helper()
	m, err := Open(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A clock that is a year ahead at a start is not believed before a year has passed; one that was right again is believed at once.
func TestClockAhead(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	if is := open(t, dir, now).Limit(now); !is.Equal(now) {
		t.Errorf("a new folder believes %s at %s", is, now)
	}
	ahead := now.Add(year)
	m := open(t, dir, ahead)
	if is := m.Limit(ahead); is.After(time.Now().Add(time.Minute)) {
		t.Fatalf("a clock a year ahead is believed: %s at %s", is, now)
	}
	begun := m.started()
	for _, step := range []struct{ passed, believed time.Duration }{{time.Hour, 2 * time.Hour}, {year / 4, year / 2}, {year, year}} {
		mark := m.advance(ahead.Add(step.passed), begun+step.passed)
		if off := mark.Sub(now.Add(step.believed)); step.believed < year && off.Abs() > time.Minute || mark.After(ahead.Add(step.passed)) {
			t.Errorf("after %s the mark is %s, want about %s", step.passed, mark, now.Add(step.believed))
		}
	}
	m = open(t, t.TempDir(), now)
	if is := m.Limit(now.Add(-year)); !is.Equal(now.Add(-year)) {
		t.Errorf("a clock that is behind reads %s", is)
	}
	if is := m.Limit(now); !is.Equal(now) {
		t.Errorf("the mark went back with it: %s", is)
	}
}

// started is when the mark was opened.
func (m *Mark) started() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// The mark outlasts the process. The time in between counts if the computer kept running, and does not count if it was off.
func TestMarkIsKept(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	m := open(t, dir, now)
	mark, found, err := Read(dir)
	if err != nil || !found || mark.Sub(now).Abs() > time.Minute {
		t.Fatalf("the mark of the folder is %s, %v, %v", mark, found, err)
	}
	write := func(boot string, since time.Duration) {
		t.Helper()
		m.is = stored{Mark: now.Add(-time.Hour)}
		m.seen = since
		if err := m.keep(); err != nil {
			t.Fatal(err)
		}
		if boot == "" {
			return
		}
		text, err := os.ReadFile(m.file)
		if err == nil {
			err = os.WriteFile(m.file, []byte(strings.ReplaceAll(string(text), bootID(), boot)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("", boottime.Now()-time.Minute)
	if is := open(t, dir, now).Limit(now); is.Sub(now.Add(-58*time.Minute)).Abs() > 10*time.Second {
		t.Errorf("after a minute without the process the mark is %s, want about %s", is, now.Add(-58*time.Minute))
	}
	write("another", 0)
	if is := open(t, dir, now).Limit(now); is.Sub(now.Add(-time.Hour)).Abs() > 10*time.Second {
		t.Errorf("after a start of the computer the mark is %s, want %s", is, now.Add(-time.Hour))
	}
}

// A folder of a version without a mark has seen when its newest file was written, but for those at its top.
func TestFolderWithoutMark(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	was := now.Add(-48 * time.Hour)
	for file, at := range map[string]time.Time{"lock": now, "api/log": was, "nats/accounts.conf": was.Add(-year)} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if is := open(t, dir, now).Limit(now); is.Sub(was).Abs() > time.Minute {
		t.Errorf("the mark is %s, want %s", is, was)
	}
}

// A file that is no mark, or a newer one, is said, with what to do.
func TestUnreadable(t *testing.T) {
	for text, says := range map[string]string{
		"": "remove the file", "{}": "remove the file", "yesterday": "remove the file", `{"version":2,"mark":"2026-11-26T00:00:00Z"}`: "newer substorm",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, time.Now()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
