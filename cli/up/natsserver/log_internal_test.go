// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"log/slog"
	"strings"
	"testing"
)

// TestWarnings: what the server says of each stream after a power cut is no warning; anything else that it warns of is.
func TestWarnings(t *testing.T) {
	var out strings.Builder
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
	for text, want := range map[string]bool{
		"Filestore [NOTICE_try] Stream state outdated, last block has additional entries, will rebuild":            false,
		"Filestore [NOTICE_try] Recovering stream state from index errored: prior state file":                      false,
		"Filestore [NOTICE_try] Sourcing state is outdated; attempting to recover using linear scan (seq 1 to 10)": false,
		"Filestore [NOTICE_try] Stream state too short (3 bytes)":                                                  true,
		"Could not get the disk's free space":                                                                      true,
	} {
		out.Reset()
		l.Warnf("%s", text)
		if got := out.Len() > 0; got != want {
			t.Errorf("%q is logged: %v", text, got)
		}
	}
}
