// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// longNames are names of 199, 200 and 201 bytes, as a gateway counts them, with characters that URLs, folders and queues escape.
func longNames(begin string) (taken, tooLong []string) {
	const beyondASCII = 6
	for _, c := range []struct {
		unit  string
		costs int
	}{{"x", 1}, {"d/:%*", 5}, {"é", beyondASCII}} {
		for _, length := range []int{wire.MaxSentName - 1, wire.MaxSentName, wire.MaxSentName + 1} {
			name := fmt.Sprintf("%s-%d-%d-", begin, c.costs, length)
			left := length - len(name)
			name += strings.Repeat(c.unit, left/c.costs) + strings.Repeat("x", left%c.costs)
			if strings.HasSuffix(name, "/") {
				name = strings.TrimSuffix(name, "/") + "x"
			}
			if length > wire.MaxSentName {
				tooLong = append(tooLong, name)
			} else {
				taken = append(taken, name)
			}
		}
	}
	return taken, tooLong
}

// TestLongNames: a file has the name that a plain PUT of its path gives it, as long as a gateway takes that, also out of a queue.
func TestLongNames(t *testing.T) {
	s := newWebStation(t, func(*wire.InstrumentEntry) {})
	at := fmt.Sprintf("http://127.0.0.1:%d/in/allsky/", s.ports[0])
	for what, flags := range map[string][]string{"sent": nil, "queued": {"--queue", filepath.Join(t.TempDir(), "queue")}} {
		dir := t.TempDir()
		taken, tooLong := longNames(what)
		for _, name := range append(taken, tooLong...) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args := append([]string{"send", "--to", at}, flags...)
		if _, stderr, code := runProgram(t, "substorm", append(args, dir)...); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", what, code, stderr)
		}
		for _, name := range taken {
			if status := putName(t, at, name); status != http.StatusOK {
				t.Errorf("%q was %s under another name: a PUT of the same bytes answers %d", name, what, status)
			}
		}
		for _, name := range tooLong {
			if status := putName(t, at, name); status != http.StatusBadRequest {
				t.Errorf("a PUT of %q answers %d", name, status)
			}
		}
	}
}

// putName puts an object that consists of its name, and returns the status.
func putName(t *testing.T, at, name string) int {
	t.Helper()
	u := at + (&url.URL{Path: name}).EscapedPath()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, u, strings.NewReader(name))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
