// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"testing"

	"github.com/klauspost/compress/zstd"
)

func compress(t *testing.T, text string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll([]byte(text), nil)
}
