// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A request comes from outside of the gateways: what it says is checked before it gets
// into a manifest.
func TestArchiveRequestIsChecked(t *testing.T) {
	for name, change := range map[string]func(*ArchiveRequest){
		"no site": func(r *ArchiveRequest) { r.Site = "" }, "no instrument": func(r *ArchiveRequest) { r.Instrument = "" },
		"no id": func(r *ArchiveRequest) { r.ID = "" }, "no time": func(r *ArchiveRequest) { r.ReceivedAt = time.Time{} },
		"another action":    func(r *ArchiveRequest) { r.Action = "Delete" },
		"a run with a dot":  func(r *ArchiveRequest) { r.Run = "01k9.zqv7r4" },
		"a wildcard as run": func(r *ArchiveRequest) { r.Run = "*" },
		"two lines":         func(r *ArchiveRequest) { r.Reason = "a\nb" },
		"a long name":       func(r *ArchiveRequest) { r.By = strings.Repeat("a", MaxReason+1) },
	} {
		r := sampleArchiveRequest()
		change(&r)
		data, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode[ArchiveRequest](data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v; want ErrMalformed", name, got, err)
		}
	}
	d := sampleDecision()
	d.Result = "Perhaps"
	data, err := Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[ArchiveDecision](data); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %+v, %v; want ErrMalformed", got, err)
	}
}
