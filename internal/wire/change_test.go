// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesKey(t *testing.T) {
	digest := Digest{0x9d, 0xff, 0x50, 0xdf, 0x08, 0xc6, 0x35, 0x81, 0x5f}
	key := ChangesKey("thule", "allsky-1", "2026-11-21", 57, digest)
	if want := "changes/thule/allsky-1/2026-11-21/57-9dff50df08c63581.jsonl.zst"; key != want {
		t.Errorf("key %q, want %q", key, want)
	}
	got, err := ParseChangesKey(key)
	if diff := cmp.Diff(ChangesFile{Site: "thule", Instrument: "allsky-1", Day: "2026-11-21", Part: 57}, got); diff != "" || err != nil {
		t.Errorf("parsed (-want +got), %v:\n%s", err, diff)
	}
	if !IsOurs(key) {
		t.Error("changes are not ours")
	}
	for _, key := range []string{
		"", "changes/thule/allsky-1/2026-11-21/0-9dff50df08c63581.jsonl.zst", "changes/thule/allsky-1/2026-11-21/07-9dff50df08c63581.jsonl.zst",
		"changes/thule/allsky-1/2026-13-21/7-9dff50df08c63581.jsonl.zst", "changes/thule/allsky-1/2026-11-21/7-9DFF50df08c63581.jsonl.zst",
		"changes/thule/allsky-1/2026-11-21/7.jsonl.zst", "changes/thule/2026-11-21/7-9dff50df08c63581.jsonl.zst",
		"manifest/thule/allsky-1/2026-11-21/p-7.jsonl.zst", "x/changes/thule/allsky-1/2026-11-21/7-9dff50df08c63581.jsonl.zst",
	} {
		if got, err := ParseChangesKey(key); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %+v, %v", key, got, err)
		}
	}
}
