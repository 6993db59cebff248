// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// described is the magnetometer of three generations: it was moved an hour after start,
// and two hours after it what it measures was mended and its data given a license.
func described() (now wire.InstrumentEntry, generations []wire.Description) {
	now = magnetometer()
	now.Rights = &wire.RightsEntry{License: "CC-BY-4.0", DOI: "10.5555/mag", Citation: "Observatory (2026)", Credit: "Observatory"}
	moved := magnetometer()
	moved.Channels[0].Parameters = slices.Clone(moved.Channels[0].Parameters)
	moved.Channels[0].Parameters[0].Units = "pT"
	moved.Channels[0].Parameters[2].Name = "state" // no parameter of today
	moved.Rights = &wire.RightsEntry{License: "LicenseRef-ask"}
	first := moved
	first.About = &wire.AboutEntry{Type: "Magnetometer", Latitude: "70", Longitude: "19", Contact: "Somebody else"}
	for i, e := range []wire.InstrumentEntry{first, moved, now} {
		e.Generation = int64(i + 1)
		generations = append(generations, wire.DescriptionOf(site, e, start.Add(time.Duration(i)*time.Hour)))
	}
	// One that says the same of this channel, and something of another.
	other := generations[1]
	other.Generation, other.From = 7, other.From.Add(time.Minute)
	other.Channels = append(slices.Clone(other.Channels), wire.ChannelEntry{Name: "house"})
	return now, slices.Insert(generations, 2, other)
}

func TestGenerations(t *testing.T) {
	now, generations := described()
	l := newLab(t, now)
	l.generations = map[string][]wire.Description{"mag": generations}
	l.segment(t, "mag", "raw", 1, sample(start, "1,2,3,4,x"), sample(start.Add(90*time.Minute), "2,2,3,4,y"), sample(start.Add(3*time.Hour), "3,2,3,4,z"))

	decoded := func(body []byte) (of map[string]any) {
		t.Helper()
		if err := json.Unmarshal(body, &of); err != nil {
			t.Fatalf("%v %s", err, body)
		}
		return of
	}
	_, body := l.get(t, "/info", "dataset=mag/field")
	info := decoded(body)
	for name, want := range map[string]any{"datasetCitation": "Observatory (2026)", "resourceID": "https://doi.org/10.5555/mag",
		"licenseURL": "https://spdx.org/licenses/CC-BY-4.0.html", "x_credit": "Observatory", "x_license": nil, "contact": "Observatory <mag@example.org>"} {
		if info[name] != want {
			t.Errorf("%s is %v, want %v", name, info[name], want)
		}
	}
	inPicotesla := []any{map[string]any{"name": "B", "units": "pT"}}
	unlicensed := func(more map[string]any) map[string]any {
		for _, name := range []string{"datasetCitation", "resourceID", "licenseURL", "x_credit"} {
			more[name] = nil
		}
		more["x_license"], more["parameters"] = "LicenseRef-ask", inPicotesla
		return more
	}
	wantAll := []any{
		unlicensed(map[string]any{"generation": 1., "from": "2026-11-20T22:00:00.000Z", "to": "2026-11-20T23:00:00.000Z", "geoLocation": []any{19., 70.}, "contact": "Somebody else"}),
		unlicensed(map[string]any{"generation": 2., "from": "2026-11-20T23:00:00.000Z", "to": "2026-11-21T00:00:00.000Z"}),
		map[string]any{"generation": 3., "from": "2026-11-21T00:00:00.000Z"},
	}
	if diff := cmp.Diff(wantAll, info["x_generations"]); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	_, body = l.get(t, "/info", "dataset=mag/field&parameters=n")
	one := decoded(body)["x_generations"].([]any)[1].(map[string]any)
	if _, told := one["parameters"]; told {
		t.Errorf("what was not asked for differs: %v", one)
	}

	// The header has the declaration at the request's start, and values follow today's declaration.
	header := func(from, to time.Duration) (map[string]any, []byte) {
		t.Helper()
		answer, body := l.get(t, "/data", between("mag/field", start.Add(from), start.Add(to), "include", "header"))
		if answer.StatusCode != http.StatusOK || body[0] != '#' {
			t.Fatalf("%s %s", answer.Status, body)
		}
		first, data, _ := bytes.Cut(body[1:], []byte("\n"))
		return decoded(first), data
	}
	units := func(of map[string]any) any { return of["parameters"].([]any)[1].(map[string]any)["units"] }
	old, data := header(0, time.Hour)
	if old["contact"] != "Somebody else" || old["licenseURL"] != nil || units(old) != "pT" || old["x_generations"] != nil {
		t.Errorf("of the first hour: %v", old)
	}
	if string(data) != "2026-11-20T22:00:00.000Z,1,2,3,4,x\n" {
		t.Errorf("of the first hour: %s", data)
	}
	moved, _ := header(90*time.Minute, 4*time.Hour)
	wantLater := []any{
		map[string]any{"generation": 7., "from": "2026-11-20T23:01:00.000Z", "to": "2026-11-21T00:00:00.000Z"},
		map[string]any{"generation": 3., "from": "2026-11-21T00:00:00.000Z", "datasetCitation": "Observatory (2026)", "resourceID": "https://doi.org/10.5555/mag",
			"licenseURL": "https://spdx.org/licenses/CC-BY-4.0.html", "x_credit": "Observatory", "x_license": nil,
			"parameters": []any{map[string]any{"name": "B", "units": "nT"}}},
	}
	if diff := cmp.Diff(wantLater, moved["x_generations"]); diff != "" || units(moved) != "pT" || moved["contact"] != now.About.Contact {
		t.Errorf("of the second hour on (-want +got):\n%s\n%v", diff, moved)
	}
	if last, _ := header(3*time.Hour, 4*time.Hour); units(last) != "nT" || last["datasetCitation"] != "Observatory (2026)" {
		t.Errorf("of the last hour: %v", last)
	}
	_, body = l.get(t, "/data", between("mag/field", start, start.Add(time.Hour), "format", "json"))
	if of := decoded(body); of["contact"] != "Somebody else" || len(of["data"].([]any)) != 1 {
		t.Errorf("%v", of)
	}

	// Without descriptions all is as it is now.
	l.generations = nil
	if of, _ := header(0, time.Hour); of["contact"] != now.About.Contact || of["x_generations"] != nil {
		t.Errorf("without descriptions: %v", of)
	}
}

// TestGenerationTag: a cached answer with a header is invalid once the description in it changed,
// and stays valid if other descriptions change.
func TestGenerationTag(t *testing.T) {
	now, generations := described()
	l := newLab(t, now)
	l.segment(t, "mag", "raw", 1, sample(start, "1,2,3,4,x"), sample(start.Add(3*time.Hour), "3,2,3,4,z"))
	tag := func(more ...string) string {
		t.Helper()
		answer, _ := l.get(t, "/data", between("mag/field", start, start.Add(time.Hour), more...))
		return answer.Header.Get("ETag")
	}
	bare, with := tag(), tag("include", "header")
	l.generations = map[string][]wire.Description{"mag": generations[:1]}
	if tag() != bare {
		t.Error("numbers alone have another tag")
	}
	first := tag("include", "header")
	if first == with {
		t.Error("another header has the same tag")
	}
	l.generations["mag"] = generations
	if tag("include", "header") != first {
		t.Error("a later generation changes the tag of what is older")
	}
}
