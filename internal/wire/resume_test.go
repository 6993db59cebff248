// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
)

// A token has one spelling, and what is none says so.
func TestTokens(t *testing.T) {
	for _, text := range []string{"", "~", "19a2b3c4d5e-7-0~", "~19a2b3c4d5e-18446744073709551615-4294967295", "1-0-0~1-2-3"} {
		token, err := ParseFeedToken(text)
		want := text
		if text == "" {
			want = "~"
		}
		if err != nil || token.String() != want {
			t.Errorf("%q is read as %+v, %v, and written as %q", text, token, err, token)
		}
	}
	for _, text := range []string{
		"1-2-3", "1-2~", "x-2-3~", "01-2-3~", "1-02-3~", "1-2-3~1-2-3~", "1--2-3~", "-1-2-3~", "A-1-1~", "1-18446744073709551616-0~", "1-1-4294967296~", "1-+1-0~",
	} {
		if token, err := ParseFeedToken(text); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q is read as %+v, %v", text, token, err)
		}
	}
}

func FuzzFeedToken(f *testing.F) {
	for _, text := range []string{"", "~", "19a2b3c4d5e-7-0~19a2b3c4d5e-8-999", "~1-1-1", "1-2-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseFeedToken(text)
		if err == nil && text != "" && token.String() != text {
			t.Errorf("%q is written as %q", text, token)
		}
	})
}
