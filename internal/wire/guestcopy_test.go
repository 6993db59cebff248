// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestGuestCopyKeys(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	const want = "guests/hub/arctic_allsky-1/1700000000123-0102000000000000.json"
	key := GuestCopyKey("hub", "arctic_allsky-1", at.Add(time.Microsecond), Digest{1, 2})
	if key != want || !IsOurs(key) || CheckKey(key) != nil {
		t.Errorf("%s, want %s", key, want)
	}
	if guest, copied, err := ParseGuestCopyKey(key); guest != "arctic_allsky-1" || !copied.Equal(at) || err != nil {
		t.Errorf("%s: %q, %v, %v", key, guest, copied, err)
	}
	for _, bad := range []string{"", strings.Replace(key, "_", "-", 1), strings.Replace(key, "1700000000123", "17", 1), strings.Replace(key, "0102", "", 1),
		strings.Replace(key, "guests/hub/", "guests/", 1), strings.Replace(key, "allsky", "all/sky", 1), strings.TrimSuffix(key, ".json"), key + "/"} {
		if guest, _, err := ParseGuestCopyKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %q, %v", bad, guest, err)
		}
	}
}

func FuzzParseGuestCopyKey(f *testing.F) {
	f.Add(GuestCopyKey("hub", "arctic_allsky-1", sampleTime, Digest{1, 2}))
	f.Fuzz(func(t *testing.T, key string) {
		guest, _, err := ParseGuestCopyKey(key)
		if err != nil {
			explained(t, err)
		} else if !IsGuest(guest) || !IsOurs(key) {
			t.Fatalf("%q is of %q", key, guest)
		}
	})
}
