// SPDX-License-Identifier: Apache-2.0

package summary_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/substorm/substorm/mirror-jobs/summary"
)

// However many events there are, the log has one line for each message, with the count and the first of them.
func TestFlush(t *testing.T) {
	t.Parallel()
	text := &strings.Builder{}
	l := summary.New(slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	for _, path := range []string{"a", "b", "c"} {
		l.Add(slog.LevelError, "files fail", "path", path)
		l.Add(slog.LevelWarn, "files are empty", "path", path+"0")
	}
	l.Add(slog.LevelWarn, "files are empty", "path", "d0")
	l.Flush()
	l.Flush()
	want := "level=ERROR msg=\"files fail\" count=3 first.path=a\nlevel=WARN msg=\"files are empty\" count=4 first.path=a0\n"
	if text.String() != want {
		t.Errorf("the log is\n%s", text)
	}
}
