// SPDX-License-Identifier: Apache-2.0

package https

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// TestRing: what is taken is what was read, whatever the sizes of reads.
func TestRing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
		data := make([]byte, random.IntN(1<<20))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		var from io.Reader = bytes.NewReader(data)
		if seed%2 == 1 {
			from = iotest.DataErrReader(from)
		}
		a := readAhead(io.NopCloser(from), firstAhead+random.IntN(3*firstAhead))
		var got []byte
		for {
			p := make([]byte, random.IntN(2*firstAhead))
			n, err := a.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				if err != io.EOF { //nolint:errorlint // it is the reader's own
					t.Fatal(err)
				}
				break
			}
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("seed %d: %d bytes came of %d, or other ones", seed, len(got), len(data))
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.Read(make([]byte, 1)); err == nil {
			t.Error("it is read after Close")
		}
	}
}
