// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
)

// An adoption takes nothing from elsewhere: what carries it out deletes what it names.
func TestAdoptionOfOtherKeys(t *testing.T) {
	for _, key := range []string{"manifest/thule/allsky-1/2026-11-21/p-1.jsonl.zst", "site/thule.json", AdoptionKey("thule", "1"), "quarantine/thule/../../o/x"} {
		data, err := Encode(Adoption{ID: "1", Instrument: "allsky-1", Items: []Adopted{{From: key}}})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := Decode[Adoption](data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %+v, %v", key, a, err)
		}
	}
}
