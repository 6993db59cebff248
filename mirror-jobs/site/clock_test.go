// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// The clock of an origin without changes is judged by the Date of its answers, and what it shows is remembered.
func TestClockOfUnchangedOrigin(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.has("a.jpg", storm)
	index := liar.BeforeIndex(t, h.URL)
	if _, err := h.pull(index.URL); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		off  time.Duration
		says string
	}{
		{"right", 0, ""},
		{"a year behind", -365 * 24 * time.Hour, "is off by"},
		{"a year ahead", 365 * 24 * time.Hour, "is off by"},
		{"right again", 0, ""},
		{"five hours ahead", 5 * time.Hour, ""},
		{"set back", 0, "in an earlier run"},
	} {
		index.SetClock(c.off)
		progress := &push.Progress{}
		asked, err := h.pull(index.URL, func(cfg *site.Config) { cfg.Progress = progress })
		if err != nil || len(asked) != 1 {
			t.Errorf("%s: %q, %v", c.name, asked, err)
		}
		if says := progress.OriginClock(); (says == "") != (c.says == "") || !strings.Contains(says, c.says) {
			t.Errorf("%s: %q, want %q", c.name, says, c.says)
		}
	}
}
