// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

func storm(level string, age time.Duration) *wire.SurgeLevel {
	end := time.Now().Add(-age).UTC().Truncate(time.Second)
	return &wire.SurgeLevel{Site: archivetest.Site, Level: level, Since: &end, Why: "Kp 7.3 (kp) ≥ 5", Values: []wire.SpaceWeatherValue{
		{Quantity: "Kp", Value: 7.33, Source: "kp", ValidTo: end, StaleAfterMillis: (4 * time.Hour).Milliseconds()},
		{Quantity: "Bz", Value: -14.2, Source: "wind", Spacecraft: "SOLAR1", ValidTo: end, StaleAfterMillis: (15 * time.Minute).Milliseconds()},
	}}
}

// The page shows the level, why, and the values, and says which of them are stale. A Site without levels has none of it.
func TestSpaceWeather(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if a := l.Get("/"); !strings.Contains(a.Body, `data-level="" hidden>`) {
		t.Errorf("a Site without levels shows space weather: %s", a.Body)
	}
	if a := l.Get("/?format=json"); strings.Contains(a.Body, "spaceWeather") {
		t.Errorf("JSON of a Site without levels: %s", a.Body)
	}
	page := follow(l, "")
	page.until(func(update) bool { return true })

	l.Level(storm("storm", time.Hour))
	u := page.until(func(u update) bool { return u.SpaceWeather != nil })
	if w := u.SpaceWeather; !w.Declared || w.Level != "storm" || w.Since.IsZero() || w.Why != "Kp 7.3 (kp) ≥ 5" || len(w.Values) != 2 || w.Values[0].Stale || !w.Values[1].Stale {
		t.Errorf("told %+v", w)
	}
	a := until(l, "the page has the level", "/", func(body string) bool { return strings.Contains(body, `data-level="storm">`) })
	for _, want := range []string{"level storm</b>", "Kp 7.3 (kp) ≥ 5", "<b>Kp 7.3</b> <small>kp</small>", `<li class="stale"`, "<b>Bz -14.2 nT</b> <small>wind, SOLAR1</small>"} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("the page does not say %s: %s", want, a.Body)
		}
	}
	if strings.Count(a.Body, `class="stale"`) != 1 {
		t.Error("another value than the stale one is shown as such")
	}
	var listed struct{ SpaceWeather *spaceWeather }
	if err := json.Unmarshal([]byte(l.Get("/?format=json").Body), &listed); err != nil || listed.SpaceWeather == nil || listed.SpaceWeather.Level != "storm" {
		t.Errorf("JSON: %v %+v", err, listed.SpaceWeather)
	}

	const bad = `"><script>alert(1)</script>`
	evil := storm(bad, 0)
	evil.Why, evil.Values[0].Source, evil.Values[1].Spacecraft = bad, bad, bad
	l.Level(evil)
	a = until(l, "what is bad is shown", "/", func(body string) bool { return strings.Contains(body, "alert(1)") })
	if strings.Count(a.Body, "<script") != 1 {
		t.Errorf("it is no text: %s", a.Body)
	}
	l.Level(nil)
	page.until(func(u update) bool { return u.SpaceWeather != nil && !u.SpaceWeather.Declared })
	until(l, "nothing is shown any more", "/", func(body string) bool { return strings.Contains(body, `data-level="" hidden>`) })
}
