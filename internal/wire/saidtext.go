// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSaid bounds what a SaidText keeps, in bytes: it stands in conditions and in each line of a log.
const maxSaid = 2 << 10

// SaidText is what another program says, as one line of at most 2 KiB for a status, a log or a terminal: characters that steer a
// terminal, or have text read in another order, are spaces.
func SaidText(said string) string {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(said, "\uFFFD"))
	if plain = strings.Join(strings.Fields(plain), " "); len(plain) <= maxSaid {
		return plain
	}
	end := maxSaid - len("…")
	for !utf8.RuneStart(plain[end]) {
		end--
	}
	return plain[:end] + "…"
}
