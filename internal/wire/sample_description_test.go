// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
	"time"
)

func sampleDescription() Description {
	e := sampleDecoded()
	e.Instrument, e.Generation, e.Station, e.CadenceMillis, e.MediaType = "mag-1", 4, "tromso", 1000, "text/csv"
	e.Rights = sampleRights().Rights
	e.Channels = e.Channels[:1]
	return DescriptionOf("hub", e, sampleTime)
}

func TestDescriptionKeys(t *testing.T) {
	d := sampleDescription()
	d.From = time.UnixMilli(1_700_000_000_123)
	const key, entry = "descriptions/hub/mag-1/1700000000123-4.json", "mag-1.1700000000123-4"
	if d.Key() != key || d.EntryKey() != entry || !IsOurs(key) {
		t.Errorf("%s, %s", d.Key(), d.EntryKey())
	}
	if got, err := DescriptionEntryKey(key); err != nil || got != entry {
		t.Errorf("%s: %q, %v", key, got, err)
	}
	for _, bad := range []string{"", "descriptions/hub/mag-1/1-4.json", "descriptions/hub/1700000000123-4.json", "descriptions/hub/a/b/1700000000123-4.json",
		"descriptions/hub/mag-1/1700000000123-x.json", "descriptions/hub/mag-1/1700000000123-4", key + "/"} {
		if got, err := DescriptionEntryKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// TestDescriptionSays: a generation that changes nothing of the description says the same.
func TestDescriptionSays(t *testing.T) {
	says := func(d Description) Digest {
		t.Helper()
		s, err := d.Says()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := sampleDescription(), sampleDescription()
	b.Generation, b.From = 5, b.From.Add(time.Hour)
	if says(a) != says(b) {
		t.Error("another generation alone says something else")
	}
	for name, change := range map[string]func(*Description){
		"uid": func(d *Description) { d.UID = "other" }, "station": func(d *Description) { d.Station = "" },
		"rights": func(d *Description) { d.Rights = nil }, "about": func(d *Description) { d.About = &AboutEntry{Type: "Magnetometer"} },
		"channels": func(d *Description) { d.Channels = nil }, "cadence": func(d *Description) { d.CadenceMillis++ },
	} {
		c := sampleDescription()
		if change(&c); says(c) == says(a) {
			t.Errorf("another %s says the same", name)
		}
	}
	for _, bad := range []string{`{"format":1,"site":"hub","instrument":"a"}`, `{"format":1,"instrument":"a","from":"2026-11-21T00:00:00Z"}`} {
		if _, err := Decode[Description]([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzDecodeDescription(f *testing.F) {
	seed(f, "description.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode[Description](data)
		if err != nil {
			explained(t, err)
			return
		}
		if _, err := Encode(d); err != nil && d.From.Year() <= 9999 {
			t.Fatalf("%q cannot be written again: %v", data, err)
		}
	})
}

func FuzzDescriptionEntryKey(f *testing.F) {
	f.Add(sampleDescription().Key())
	f.Fuzz(func(t *testing.T, key string) {
		if _, err := DescriptionEntryKey(key); err != nil {
			explained(t, err)
		}
	})
}
