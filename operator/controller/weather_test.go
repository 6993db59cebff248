// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge"
)

// publisher answers with a Kp of the three hours before now, and counts how often it was asked.
type publisher struct {
	*httptest.Server
	asked   atomic.Int32
	failing atomic.Bool
}

func newPublisher(t *testing.T, kp string, now time.Time) *publisher {
	p := &publisher{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if p.asked.Add(1); p.failing.Load() {
			http.Error(out, "no", http.StatusInternalServerError)
			return
		}
		began := now.UTC().Truncate(3 * time.Hour).Add(-3 * time.Hour)
		_, _ = fmt.Fprintf(out, `[{"time_tag":%q,"Kp":%s}]`, began.Format("2006-01-02T15:04:05"), kp)
	}))
	t.Cleanup(p.Close)
	return p
}

func kpSource(name, url string) v1alpha1.SpaceWeatherSource {
	return v1alpha1.SpaceWeatherSource{Name: name, Type: v1alpha1.SpaceWeatherPlanetaryKIndex, PlanetaryKIndex: &v1alpha1.SpaceWeatherPlanetaryKIndexSource{URL: url}}
}

func staticWind(value string) v1alpha1.SpaceWeatherSource {
	return v1alpha1.SpaceWeatherSource{Name: "fixed", Type: v1alpha1.SpaceWeatherStatic, Static: v1alpha1.SpaceWeatherStaticSource{
		Values: []v1alpha1.SpaceWeatherStaticValue{{Quantity: "Speed", Value: value}}}}
}

// newestOf is the newest value of a quantity that is known; false: none is.
func newestOf(w *plan.Weather, q surge.Quantity) (float64, bool) {
	newest, is := w.Signals.Of(q).Newest()
	return newest.Value, is
}

// Each Site knows what its own sources report, and a source whose declaration did not change keeps running when another one changes. A
// stale quantity has no value in metrics, but an age.
func TestWeatherSources(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)
	var later atomic.Int64
	w := newWeathers(&wakers{}, slog.New(slog.DiscardHandler), func() time.Time { return now.Add(time.Duration(later.Load())) })
	w.ctx = t.Context()
	north, south := types.NamespacedName{Namespace: "field", Name: "north"}, types.NamespacedName{Namespace: "field", Name: "south"}
	calm, storm := newPublisher(t, "2", now), newPublisher(t, "8.33", now)
	of := func(all ...v1alpha1.SpaceWeatherSource) *v1alpha1.SpaceWeather {
		return &v1alpha1.SpaceWeather{Sources: all}
	}
	await := func(site types.NamespacedName, declared *v1alpha1.SpaceWeather, q surge.Quantity, want float64) {
		t.Helper()
		var got float64
		var is bool
		for range testenv.Attempts() {
			if got, is = newestOf(w.keep(site, declared), q); is && got == want {
				return
			}
		}
		t.Fatalf("%s of %s: %v, known %v; want %v", q, site, got, is, want)
	}
	first := of(kpSource("kp", calm.URL), staticWind("400"))
	await(north, first, surge.Kp, 2)
	await(north, first, surge.Speed, 400)
	await(south, of(kpSource("kp", storm.URL)), surge.Kp, 8.33)
	await(north, first, surge.Kp, 2)

	second := of(kpSource("kp", calm.URL), staticWind("900"))
	if kp, is := newestOf(w.keep(north, second), surge.Kp); !is || kp != 2 {
		t.Errorf("a source that did not change has forgotten what it told: %v, %v", kp, is)
	}
	await(north, second, surge.Speed, 900)
	if n := calm.asked.Load(); n != 1 {
		t.Errorf("a source that did not change was asked %d times", n)
	}

	broken, another := kpSource("other", "ftp://example.org/"), kpSource("another", "gopher://example.org/")
	if known := w.keep(north, of(kpSource("kp", calm.URL), broken, another)); len(known.Invalid) != 2 || !strings.Contains(known.Invalid[0], "ftp:") || !strings.Contains(known.Invalid[1], "gopher:") {
		t.Errorf("of two sources that cannot be asked this is said: %q", known.Invalid)
	} else if kp, is := newestOf(known, surge.Kp); !is || kp != 2 {
		t.Errorf("a source that cannot be asked silences another: %v, %v", kp, is)
	}

	values := func() int { return testutil.CollectAndCount(w, "substorm_space_weather_value") }
	if n := values(); n != 2 {
		t.Errorf("%d values while they are fresh", n)
	}
	later.Store(int64(5 * time.Hour))
	if n := values(); n != 0 {
		t.Errorf("%d values while they are stale", n)
	}
	if n := testutil.CollectAndCount(w, "substorm_space_weather_age_seconds"); n != 2 {
		t.Errorf("%d ages while values are stale", n)
	}
	w.keep(north, nil)
	w.keep(south, nil)
	if len(w.sites) != 0 {
		t.Errorf("of Sites that are gone %v is kept", w.sites)
	}
}

// A failing source is reported while its newest value is not too old yet, and a source that cannot be asked has its own message.
func TestWeatherFailures(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)
	w := newWeathers(&wakers{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	w.ctx = t.Context()
	site := types.NamespacedName{Namespace: "field", Name: "north"}
	calm := newPublisher(t, "2", now)
	kp := kpSource("kp", calm.URL)
	kp.PollInterval = &metav1.Duration{Duration: time.Second}
	recorded := v1alpha1.SpaceWeatherSource{Name: "exercise", Type: v1alpha1.SpaceWeatherRecorded,
		Recorded: v1alpha1.SpaceWeatherRecordedSource{Data: "time,kp\n2015-03-17T12:00:00Z,12\n", StartTime: metav1.NewTime(now)}}
	declared := &v1alpha1.SpaceWeather{Sources: []v1alpha1.SpaceWeatherSource{kp, recorded}}
	await := func(what string, is func(*plan.Weather) bool) *plan.Weather {
		t.Helper()
		var known *plan.Weather
		for range testenv.Attempts() {
			if known = w.keep(site, declared); is(known) {
				return known
			}
		}
		t.Fatalf("%s: %+v", what, known)
		return nil
	}
	known := await("a value", func(known *plan.Weather) bool { _, is := newestOf(known, surge.Kp); return is })
	if len(known.Failures) != 0 || len(known.Invalid) != 1 || known.Invalid[0] != "spec.spaceWeather.sources, exercise: recorded.data: line 2: Kp 12 is out of range: 0 to 9" {
		t.Errorf("while it answers: %+v", known)
	}
	calm.failing.Store(true)
	known = await("a failure", func(known *plan.Weather) bool { return len(known.Failures) == 1 })
	if f := known.Failures[0]; !strings.Contains(f.Error, "source kp: ") || !strings.Contains(f.Error, "answers 500") || !f.Since.Equal(now) {
		t.Errorf("the failure is %+v", f)
	}
	if value, is := newestOf(known, surge.Kp); !is || value != 2 || !known.Signals.Of(surge.Kp).Fresh(now) {
		t.Errorf("what it told before is %v, known %v", value, is)
	}
	calm.failing.Store(false)
	await("no failure", func(known *plan.Weather) bool { return len(known.Failures) == 0 })
}
