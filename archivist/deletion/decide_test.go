// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	w := world{now: now,
		held: func(instrument string) string {
			if instrument == "held" {
				return "it is under legal hold"
			}
			return ""
		},
		spooled: func(day wire.Day) string {
			if day >= "2026-11-20" {
				return "a spool holds something of it"
			}
			return ""
		},
	}
	pack := wire.PackKey("thule", now.AddDate(0, 0, -3), "gateway-0", "one", 1)
	raw := wire.RawKey("thule", "camera", now, wire.Digest{1})
	for name, c := range map[string]struct {
		is   Object
		want string
	}{
		"an unnamed pack":                             {Object{Key: pack, Reason: wire.DeletedUnnamed, Day: "2026-11-18", Takes: []string{"camera"}, KeptUntil: now}, ""},
		"a manifest names it":                         {Object{Key: pack, Reason: wire.DeletedUnnamed, Named: pack + "#512"}, KeptNamed},
		"it has the only copy of a member":            {Object{Key: pack, Reason: wire.DeletedUnnamed, Only: "x"}, KeptOnly},
		"it is too young":                             {Object{Key: pack, Reason: wire.DeletedUnnamed, KeptUntil: now.Add(1)}, KeptYoung},
		"a spool may hold a member":                   {Object{Key: pack, Reason: wire.DeletedUnnamed, Day: "2026-11-20"}, KeptSpooled},
		"a purged member is held":                     {Object{Key: pack, Reason: wire.DeletedUnnamed, Takes: []string{"camera", "held"}}, KeptHold},
		"another instrument is held":                  {Object{Key: pack, Reason: wire.DeletedRewritten, Takes: []string{"camera"}}, ""},
		"an object of its own that is in a pack":      {Object{Key: raw, Reason: wire.DeletedMoved, Instrument: "held", Instead: pack}, ""}, // its bytes stay
		"a duplicate of an instrument under hold":     {Object{Key: raw, Reason: wire.DeletedDuplicate, Instrument: "held", Instead: raw}, ""},
		"a duplicate without an original":             {Object{Key: raw, Reason: wire.DeletedDuplicate, Instrument: "camera"}, KeptUnproven},
		"moved to an unknown place":                   {Object{Key: raw, Reason: wire.DeletedMoved}, KeptUnproven},
		"an unnamed pack of unknown age":              {Object{Key: pack, Reason: wire.DeletedUnnamed, Day: "2026-11-18"}, KeptUnproven},
		"an unnamed pack of an unknown day":           {Object{Key: pack, Reason: wire.DeletedUnnamed, KeptUntil: now}, KeptUnproven},
		"a purge without an instrument":               {Object{Key: raw, Reason: wire.DeletedPurged}, KeptUnproven},
		"staging of unknown age":                      {Object{Key: "staging/thule/camera/1", Reason: wire.DeletedStaging}, KeptUnproven},
		"without a reason":                            {Object{Key: raw}, KeptUnproven},
		"a duplicate whose original is gone":          {Object{Key: raw, Reason: wire.DeletedDuplicate, Only: raw}, KeptOnly},
		"a purged object":                             {Object{Key: raw, Reason: wire.DeletedPurged, Instrument: "camera", Takes: []string{"camera"}}, ""},
		"a purged object under hold":                  {Object{Key: raw, Reason: wire.DeletedPurged, Instrument: "held", Takes: []string{"held"}}, KeptHold},
		"an expired object under hold":                {Object{Key: raw, Reason: wire.DeletedExpired, Takes: []string{"held"}}, KeptHold},
		"a key that another object has now":           {Object{Key: raw, Reason: wire.DeletedPurged, Named: raw}, KeptNamed},
		"what was imported in place":                  {Object{Key: "old/tree/1.fits", Reason: wire.DeletedExpired}, KeptForeign},
		"named counts before all that ends by itself": {Object{Key: pack, Named: "x", KeptUntil: now.Add(1), Takes: []string{"held"}}, KeptNamed},
		"staging":                           {Object{Key: "staging/thule/camera/1", Reason: wire.DeletedStaging, KeptUntil: now.Add(-time.Hour)}, ""},
		"staging that somebody may work on": {Object{Key: "staging/thule/camera/1", Reason: wire.DeletedStaging, KeptUntil: now.Add(time.Hour)}, KeptYoung},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(c.is, w)
			if got == nil && c.want != "" || got != nil && got.Why != c.want {
				t.Errorf("%v, want %q", got, c.want)
			}
			if got != nil && (got.Key != c.is.Key || got.Detail == "") {
				t.Errorf("it says too little: %v", got)
			}
		})
	}
}
