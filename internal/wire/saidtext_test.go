// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/substorm/substorm/internal/wire"
)

func TestSaidText(t *testing.T) {
	for said, want := range map[string]string{
		"":                         "",
		"disk full: Kiruna–Tromsø": "disk full: Kiruna–Tromsø",
		"\x1b[2J\x1b]0;title\a gone\r\nall\x00 well": "[2J ]0;title gone all well",
		"a\u202egpj.exe\u2028b\u009b1m":              "a gpj.exe b 1m",
		"broken \xff\xfe bytes":                      "broken \uFFFD bytes",
	} {
		if got := wire.SaidText(said); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
	}
	long := wire.SaidText(strings.Repeat("æ", 100_000))
	if len(long) > 2<<10 || !utf8.ValidString(long) || !strings.HasSuffix(long, "æ…") {
		t.Errorf("a long text becomes one of %d bytes: …%q", len(long), long[len(long)-8:])
	}
}
