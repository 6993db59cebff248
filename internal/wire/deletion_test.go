// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDeletions(t *testing.T) {
	d := Deletions{Header: DeletionHeader{Format: Format, Site: "thule", At: time.Date(2026, 11, 21, 23, 59, 59, 7e6, time.UTC), Gateway: "gateway-1", Incarnation: "abc"},
		Objects: []DeletedObject{
			{Key: "o/thule/camera/n/Nacht & Tag <1>.fits", Reason: DeletedPurged, Instrument: "camera"},
			{Key: "packs/thule/2026/11/21/1795305599000-gateway-0-one-1.tar", Reason: DeletedUnnamed}}}
	if key, want := DeletionKey(d.Header, 3), "deletions/thule/2026-11-21/1795305599007-gateway-1-abc-3.jsonl.zst"; key != want || !IsOurs(key) {
		t.Errorf("key %q, want %q", key, want)
	}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeDeletions(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := DecodeDeletions(bytes.NewReader(data[:len(data)-9])); !errors.Is(err, ErrMalformed) {
		t.Errorf("a torn record: %v", err)
	}
}
