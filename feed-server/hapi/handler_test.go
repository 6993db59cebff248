// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func TestInfo(t *testing.T) {
	l := newMagnetometer(t)
	answer, body := l.get(t, "/info", "dataset=mag/field")
	if answer.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", answer.Header)
	}
	want := `{"HAPI":"3.3","status":{"code":1200,"message":"OK"},"startDate":"2026-11-20T00:00:00Z","stopDate":"2026-11-22T00:00:00Z",` +
		`"sampleStartDate":"2026-11-20T22:00:00Z","sampleStopDate":"2026-11-20T22:01:40Z","timeStampLocation":"begin","cadence":"PT1S",` +
		`"description":"The field.","unitsSchema":"udunits2","geoLocation":[18.94,69.66,85],"contact":"Observatory \u003cmag@example.org\u003e","parameters":[` +
		`{"name":"Time","type":"isotime","length":24,"units":"UTC","fill":null},` +
		`{"name":"B","type":"double","size":[3],"units":"nT","fill":"-1e31"},` +
		`{"name":"n","type":"integer","units":null,"fill":"-1"},` +
		`{"name":"mode","type":"string","length":6,"units":null,"fill":"?","description":"How it measures."}]}` + "\n"
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var subset struct{ Parameters []struct{ Name string } }
	_, body = l.get(t, "/info", "id=mag/field&parameters=n&resolve_references=false")
	if err := json.Unmarshal(body, &subset); err != nil || len(subset.Parameters) != 2 || subset.Parameters[1].Name != "n" {
		t.Errorf("%v %s", err, body)
	}
}

func TestCatalog(t *testing.T) {
	camera := wire.InstrumentEntry{Instrument: "allsky", Access: public}
	l := newLab(t, magnetometer(), camera)
	_, body := l.get(t, "/catalog", "")
	if diff := cmp.Diff(`{"HAPI":"3.3","status":{"code":1200,"message":"OK"},"catalog":[{"id":"mag/field","title":"Magnetometer mag, field"}]}`+"\n", string(body)); diff != "" {
		t.Error(diff)
	}
	var all struct {
		Catalog []struct{ Info map[string]any }
	}
	var one map[string]any
	_, body = l.get(t, "/catalog", "depth=all")
	if err := json.Unmarshal(body, &all); err != nil || len(all.Catalog) != 1 {
		t.Fatalf("%v %s", err, body)
	}
	_, body = l.get(t, "/info", "dataset=mag/field")
	if err := json.Unmarshal(body, &one); err != nil {
		t.Fatal(err)
	}
	delete(one, "HAPI")
	delete(one, "status")
	if diff := cmp.Diff(one, all.Catalog[0].Info); diff != "" {
		t.Errorf("info by itself and in the catalog (-itself +catalog):\n%s", diff)
	}
}

func TestPages(t *testing.T) {
	l := newMagnetometer(t)
	for path, want := range map[string]string{
		"/about":        `"id":"Substorm/thule"`,
		"/capabilities": `"outputFormats":["csv","binary","json"],"catalogDepthOptions":["dataset","all"]`,
		"":              `<a href="hapi/info?dataset=mag%2Ffield">mag/field</a>`,
	} {
		answer, body := l.get(t, path, "")
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%q: %s %s", path, answer.Status, body)
		}
	}
	answer, _ := l.get(t, "/info/", "dataset=mag/field")
	if answer.StatusCode != http.StatusMovedPermanently || answer.Header.Get("Location") != "/hapi/info?dataset=mag/field" {
		t.Errorf("%s %v", answer.Status, answer.Header)
	}
	// The sample that the page links has data.
	_, body := l.get(t, "/data", "dataset=mag/field&start=2026-11-20T22:00:00Z&stop=2026-11-20T22:01:40Z")
	if string(body) != wantCSV {
		t.Errorf("%s", body)
	}
}

func TestRefusals(t *testing.T) {
	l := newMagnetometer(t)
	const data = "dataset=mag/field&start=2026-11-20T22:00Z&stop=2026-11-20T23:00Z"
	replace := func(old, new string) string { return strings.Replace(data, old, new, 1) }
	for _, c := range []struct {
		path, query string
		http, code  int
	}{
		{"/nothing", "", 400, 1400},
		{"/about", "x=1", 400, 1401},
		{"/catalog", "dataset=mag/field", 400, 1401},
		{"/catalog", "depth=7", 400, 1413},
		{"/info", "dataset=mag/field&resolve_references=7", 400, 1412},
		{"/info", "", 404, 1406},
		{"/info", "dataset=mag", 404, 1406},
		{"/info", "dataset=mag/other", 404, 1406},
		{"/info", "dataset=../mag/field", 404, 1406},
		{"/info", "dataset=mag/field%00", 404, 1406},
		{"/info", "dataset=mag/field&parameters=x", 404, 1407},
		{"/info", "dataset=mag/field&parameters=n,B", 400, 1411},
		{"/info", "dataset=mag/field&parameters=n,n", 400, 1411},
		{"/info", "dataset=mag/field&parameters=n,Time", 400, 1411},
		{"/info", "dataset=mag/field&id=mag/field", 400, 1400},
		{"/info", "dataset=mag/field&dataset=mag/field", 400, 1400},
		{"/info", "dataset=%zz", 400, 1400},
		{"/data", data + "&average=5s", 400, 1401},
		{"/data", data + "&Format=csv", 400, 1401},
		{"/data", "dataset=mag/field", 400, 1402},
		{"/data", replace("start=2026-11-20T22:00Z", "start=yesterday"), 400, 1402},
		{"/data", replace("start=2026-11-20T22:00Z", "start=2026-11-20T22:00%2B01:00"), 400, 1402},
		{"/data", replace("start=2026-11-20T22:00Z", "start=2026-11-20%2022:00Z"), 400, 1402},
		{"/data", replace("stop=2026-11-20T23:00Z", "stop=2026-11-31"), 400, 1403},
		{"/data", replace("stop=2026-11-20T23:00Z", "stop=2026-11-20T22:00Z"), 400, 1404},
		{"/data", replace("start=2026-11-20T22:00Z", "start=1899-12-31"), 400, 1405},
		{"/data", replace("start=2026-11-20T22:00Z", "start=0001"), 400, 1405},
		{"/data", replace("stop=2026-11-20T23:00Z", "stop=9999-12-31"), 400, 1405},
		{"/data", replace("stop=2026-11-20T23:00Z", "stop=2026-11-22T00:00:00.001Z"), 400, 1405},
		{"/data", data + "&format=xml", 400, 1409},
		{"/data", data + "&include=all", 400, 1410},
		{"/data", data + "&parameters=B,", 404, 1407},
	} {
		answer, body := l.get(t, c.path, c.query)
		var got struct {
			HAPI   string
			Status struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s?%s: %v\n%s", c.path, c.query, err, body)
		}
		if answer.StatusCode != c.http || got.Status.Code != c.code || got.HAPI != "3.3" || answer.Header.Get("ETag") != "" {
			t.Errorf("%s?%s: %d, %s", c.path, c.query, answer.StatusCode, body)
		}
		if strings.Contains(got.Status.Message, "yesterday") || strings.Contains(got.Status.Message, "average") {
			t.Errorf("what was asked comes back: %s", body)
		}
	}
}

// TestAccess asks as an anonymous reader, as a reader, and as a reader that the instrument names.
func TestAccess(t *testing.T) {
	with := func(name string, a *wire.AccessEntry) wire.InstrumentEntry {
		e := magnetometer()
		e.Instrument, e.Access = name, a
		return e
	}
	l := newLab(t, with("open", public), with("readers", nil),
		with("some", &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessRestricted, Readers: []string{"uni"}}),
		with("later", &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, Readers: []string{"uni"}, EmbargoMillis: (13 * time.Hour).Milliseconds()}))
	for name := range l.instruments {
		l.segment(t, name, "raw", 1, sample(second(0), "1,2,3,4,x"), sample(second(3599), "1,2,3,4,y"), sample(second(3600), "1,2,3,4,z"))
	}
	basic := func(name string) []string {
		if name == "" {
			return nil
		}
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth("anything", name+"-token")
		return []string{"Authorization", r.Header.Get("Authorization")}
	}
	for asker, may := range map[string][]string{"": {"later", "open"}, "other": {"later", "open", "readers"}, "uni": {"later", "open", "readers", "some"}} {
		var got struct {
			Catalog []struct{ ID string }
		}
		_, body := l.get(t, "/catalog", "", basic(asker)...)
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, d := range got.Catalog {
			listed = append(listed, strings.TrimSuffix(d.ID, "/field"))
		}
		if diff := cmp.Diff(may, listed); diff != "" {
			t.Errorf("%q is listed (-want +got):\n%s", asker, diff)
		}
		for name := range l.instruments {
			// Until 23:00 there is no embargo any more: now is 12:00 on the next day.
			query := "dataset=" + name + "/field&start=" + url.QueryEscape(start.Format(time.RFC3339)) + "&stop=2026-11-20T23:00:00Z"
			want := http.StatusOK
			switch {
			case slices.Contains(may, name):
			case asker == "":
				want = http.StatusUnauthorized
			default:
				want = http.StatusForbidden
			}
			for _, path := range []string{"/data?" + query, "/info?dataset=" + name + "/field"} {
				path, query, _ := strings.Cut(path, "?")
				if answer, body := l.get(t, path, query, basic(asker)...); answer.StatusCode != want {
					t.Errorf("%q asks for %s of %s: %s %s", asker, path, name, answer.Status, body)
				} else if want == http.StatusUnauthorized && len(answer.Header.Values("WWW-Authenticate")) != 2 {
					t.Errorf("%v", answer.Header)
				}
			}
		}
	}
	if answer, _ := l.get(t, "/catalog", "", basic("nobody")...); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token of nobody: %s", answer.Status)
	}
	// Data under embargo is hidden from other readers, and info says up to which time there is
	// data.
	all := "dataset=later/field&start=2026-11-20T22:00Z&stop=2026-11-21"
	if answer, body := l.get(t, "/data", all); answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "1405") {
		t.Errorf("an anonymous reader asks beyond the embargo: %s %s", answer.Status, body)
	}
	_, body := l.get(t, "/data", "dataset=later/field&start=2026-11-20T22:00Z&stop=2026-11-20T23:00Z&parameters=mode")
	if string(body) != "2026-11-20T22:00:00.000Z,x\n2026-11-20T22:59:59.000Z,y\n" {
		t.Errorf("an anonymous reader gets %s", body)
	}
	if _, body = l.get(t, "/info", "dataset=later/field"); !strings.Contains(string(body), `"stopDate":"2026-11-20T23:00:00Z"`) {
		t.Errorf("%s", body)
	}
	if _, body = l.get(t, "/data", all+"&parameters=mode", basic("uni")...); !strings.Contains(string(body), ",z\n") {
		t.Errorf("a named reader gets %s", body)
	}
	tag := func(asker string) string {
		answer, _ := l.get(t, "/data", "dataset=later/field&start=2026-11-20T22:00Z&stop=2026-11-20T23:00Z", basic(asker)...)
		return answer.Header.Get("ETag")
	}
	for i := uint64(2); ; i++ { // a tag reveals the arrival of data under embargo only to the minute
		minute, before, readers := time.Now().Truncate(time.Minute), tag(""), tag("uni")
		l.segment(t, "later", "raw", i, sample(second(3600+int(i)), "1,2,3,4,z"))
		after := tag("")
		if readers == tag("uni") {
			t.Error("the tag of a reader who may have it does not change")
		}
		if time.Now().Truncate(time.Minute).Equal(minute) {
			if before != after {
				t.Errorf("the tag for an anonymous reader was %s, and is %s", before, after)
			}
			break
		}
	}
}

func FuzzQuery(f *testing.F) {
	l := newLab(f, magnetometer())
	for _, q := range []string{"dataset=mag/field&start=2026&stop=2027", "id=mag/field&time.min=2026-001T00Z&time.max=2026-002&parameters=Time,B&format=binary&include=header", "%&=;"} {
		f.Add("data", q)
		f.Add("info", q)
	}
	f.Fuzz(func(t *testing.T, endpoint, query string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+"/"+url.PathEscape(endpoint), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.RawQuery = url.QueryEscape(query)
		if u, err := url.ParseQuery(query); err == nil {
			request.URL.RawQuery = u.Encode()
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode >= 500 {
			t.Errorf("%s %s", request.URL, answer.Status)
		}
	})
}
