// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDigest(t *testing.T) {
	// SHA-256 of "abc": FIPS 180-4, example B.1.
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	d, err := ParseDigest(abc)
	if err != nil || d != sampleDigest("abc") || d.String() != abc {
		t.Errorf("got %s, %v; want %s", d, err, abc)
	}
	for _, bad := range []string{"", abc[:63], abc + "0", strings.ToUpper(abc), strings.Replace(abc, "b", "g", 1), " " + abc[1:]} {
		if d, err := ParseDigest(bad); !errors.Is(err, ErrMalformed) || d != (Digest{}) {
			t.Errorf("%q: got %s, %v; want ErrMalformed", bad, d, err)
		}
	}
}

// TestDigestSum compares with big-integer arithmetic modulo 2^256.
func TestDigestSum(t *testing.T) {
	modulus := new(big.Int).Lsh(big.NewInt(1), 256)
	source := rand.NewChaCha8([32]byte{1})
	var sum Digest
	want := new(big.Int)
	ones, one := Digest{}, Digest{31: 1}
	for i := range ones {
		ones[i] = 0xff
	}
	digests := []Digest{ones, one, {}, ones, ones, {0: 0x80}, {0: 0x80}}
	for range 1000 {
		var d Digest
		_, _ = source.Read(d[:])
		digests = append(digests, d)
	}
	for _, d := range digests {
		sum = sum.Plus(d)
		want.Add(want, new(big.Int).SetBytes(d[:])).Mod(want, modulus)
		var bytes [32]byte
		want.FillBytes(bytes[:])
		if sum != Digest(bytes) {
			t.Fatalf("after adding %s: %s, want %x", d, sum, bytes)
		}
	}
	var shuffled Digest
	rand.New(source).Shuffle(len(digests), func(i, j int) { digests[i], digests[j] = digests[j], digests[i] })
	for _, d := range digests {
		shuffled = shuffled.Plus(d)
	}
	if shuffled != sum {
		t.Errorf("the sum depends on the order: %s and %s", sum, shuffled)
	}
	for _, d := range digests {
		if back := sum.Plus(d).Minus(d); back != sum {
			t.Fatalf("%s and %s, and that taken away: %s", sum, d, back)
		}
		sum = sum.Minus(d)
	}
	if sum != (Digest{}) {
		t.Errorf("all taken away, %s is left", sum)
	}
}

func TestTotalsAddUp(t *testing.T) {
	a, b := sampleTotals(), sampleTotals()
	b.Dropped = map[Cause]uint64{CauseBacklog: 9}
	b.Unfinished = nil
	got := LedgerEntry{Incarnations: map[string]Totals{"a": a, "b": b}}.Sum()
	want := Totals{
		Objects: 6, ObjectBytes: 30, Digest: a.Digest.Plus(b.Digest), Datagrams: 1200, DatagramBytes: 42_000, Acknowledged: 4,
		Unfinished: map[Cause]uint64{CauseReset: 1, CauseStalled: 2}, UnfinishedBytes: 14,
		Dropped: map[Cause]uint64{CauseKernelBuffer: 4, CauseBacklog: 9}, Unknown: 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[Cause]uint64{CauseReset: 1, CauseStalled: 2}, a.Unfinished); diff != "" {
		t.Errorf("adding changed a summand:\n%s", diff)
	}
	if sum := (LedgerEntry{}).Sum(); sum.Objects != 0 || sum.Dropped != nil {
		t.Errorf("sum of nothing: %+v", sum)
	}
}
