// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Entries come back from scratch as they were added; one that a failing disk changed, or
// lost, is an error.
func TestScratchOfEntries(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*share) error
		want  error
	}{
		"as it was":       {func(*share) error { return nil }, nil},
		"a bit flipped":   {func(s *share) error { _, err := s.file.WriteAt([]byte{0x80}, int64(3*entrySize+18)); return err }, errScratch},
		"the end is gone": {func(s *share) error { return s.file.Truncate(int64(5*entrySize + 1)) }, errScratch},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newShare()
			if err != nil {
				t.Fatal(err)
			}
			defer s.file.Close()
			var want, got []entry
			for i := range 10 {
				e := entry{HashID(fmt.Sprint(i)), placeOf(i, 1<<20+i), uint64(i) << 60, rank(i % 4)}
				want = append(want, e)
				if err := s.add(e); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(s.out.Flush(), c.spoil(s)); err != nil {
				t.Fatal(err)
			}
			err = s.each(func(e entry) { got = append(got, e) })
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if !slices.Equal(got, want[:len(got)]) || err == nil && len(got) != len(want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}
