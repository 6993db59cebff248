// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"
)

func TestTokenHash(t *testing.T) {
	const token = "a token that is long and random"
	h := HashToken([]byte("0123456789abcdef"), token)
	if !h.Matches(token) {
		t.Error("a token does not match its own hash")
	}
	for _, other := range []string{"", token + " ", strings.ToUpper(token), h.SHA256, h.Salt} {
		if h.Matches(other) {
			t.Errorf("%q matches", other)
		}
	}
	if again := HashToken([]byte("fedcba9876543210"), token); again.SHA256 == h.SHA256 {
		t.Error("the salt makes no difference")
	}
	for _, broken := range []TokenHash{{}, {Salt: "zz", SHA256: h.SHA256}, {Salt: h.Salt}} {
		if broken.Matches(token) || broken.Matches("") {
			t.Errorf("%+v matches", broken)
		}
	}
}
