// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestRemoval(t *testing.T) {
	one, day := sampleRemoval(), sampleExpiry()
	if key, want := day.Key(), "removal.allsky-1.2016-11-21"; key != want {
		t.Errorf("key %q, want %q", key, want)
	}
	other := one
	other.ID += "x"
	if one.Key() == other.Key() || !strings.HasPrefix(one.Key(), removalKeys) {
		t.Errorf("keys %q and %q", one.Key(), other.Key())
	}
	for _, text := range []string{`{"format":1}`, `{"format":1,"instrument":"a","day":"x"}`, `{"format":1,"day":"2026-11-21"}`} {
		if _, err := Decode[Removal]([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Decode[Removal]([]byte(`{"format":99,"instrument":7}`)); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer one: %v", err)
	}
}
