// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/mirror-jobs/liar"
)

// The clock of a server without changes is judged by the Date of its answers, and what it shows is remembered.
func TestClockOfUnchangedServer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Wait(l.Put(archivetest.Camera, "a.jpg", "a", at(storm)))
	index := liar.BeforeIndex(t, l.URL)
	if err := l.from(t.Context(), index.URL); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		off  time.Duration
		says string
	}{
		{"right", 0, ""},
		{"a year behind", -365 * 24 * time.Hour, "is off by"},
		{"five hours ahead", 5 * time.Hour, ""},
		{"set back", 0, "in an earlier run"},
	} {
		index.SetClock(c.off)
		l.Asked()
		err := l.from(t.Context(), index.URL)
		if asked := l.Asked(); len(asked) != 1 {
			t.Errorf("%s: %q", c.name, asked)
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}
