// SPDX-License-Identifier: Apache-2.0

package manifest

import "testing"

// HoldAtMost bounds how many identities are held while a test runs.
func HoldAtMost(t *testing.T, held int) {
	was := maxHeld
	t.Cleanup(func() { maxHeld = was })
	maxHeld = held
}

// KeepAtMost bounds how many bytes of a day's files are kept while a test runs.
func KeepAtMost(t *testing.T, bytes int) {
	was := keepBytes
	t.Cleanup(func() { keepBytes = was })
	keepBytes = bytes
}
