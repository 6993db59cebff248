// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// Tags are those that earlier releases made: clients hold them.
func TestTagOf(t *testing.T) {
	t.Parallel()
	fresh := []*item{{sequence: 7}, {sequence: 8}, {sequence: 1 << 40}}
	for _, sum := range []wire.RootDay{{Day: "2026-11-18"}, {Day: "2026-11-18", Version: 3}, {Day: "2026-11-18", Version: 1, Parts: wire.PartNumbers{{1, 1440}, {1442, 1442}}}} {
		for _, over := range [][]*item{nil, fresh[:1], fresh} {
			text := fmt.Sprintf("%s %d %v", sum.Day, sum.Version, sum.Parts)
			if len(over) > 0 {
				text += fmt.Sprintf(" %s %d %d", "19aa", over[0].sequence, over[len(over)-1].sequence)
			}
			hash := sha256.Sum256([]byte(text))
			if got, want := tagOf(sum, "19aa", over), hex.EncodeToString(hash[:12]); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}
