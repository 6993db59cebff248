// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/internal/wire"
)

// storm is a time long ago.
var storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)

func newLab(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	l.Open(bundle.New(bundle.Config{Site: archivetest.Site, Catalog: l.Catalog, Store: l.Store, AccessCheck: l.AccessCheck, Logger: l.Logger}).Endpoints())
	return l
}

func at(received time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ReceivedAt = received.UTC() }
}

func observed(at time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ObservedFrom, r.ObservedTo, r.TimeSource = &at, &at, wire.TimeSourceName }
}

// unpacked is what is in a bundle.
type unpacked struct {
	names []string
	files map[string]string
	end   bundle.End
}

func unpack(t testing.TB, body io.Reader) unpacked {
	t.Helper()
	u := unpacked{files: map[string]string{}}
	for r := tar.NewReader(body); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return u
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, archivetest.Site+"/")
		if !ok {
			t.Errorf("%s is not below the Site", h.Name)
		}
		u.files[name] = string(data)
		switch {
		case name == "bundle.d/end.json":
			if err := json.Unmarshal(data, &u.end); err != nil {
				t.Fatal(err)
			}
		case name != "README.txt":
			u.names = append(u.names, name)
		}
	}
}

// get returns a bundle, which must be complete.
func get(l *archivetest.Lab, path string, headers ...string) unpacked {
	l.Helper()
	a := l.Get(path, headers...)
	if a.Status != http.StatusOK || a.Err != nil {
		l.Fatalf("%s: %d %v %.300s", path, a.Status, a.Err, a.Body)
	}
	u := unpack(l.TB, strings.NewReader(a.Body))
	if u.end.Format == 0 || u.files["README.txt"] == "" {
		l.Fatalf("%s: it has no end, or no beginning", path)
	}
	return u
}

func (u unpacked) want(t testing.TB, what string, names ...string) {
	t.Helper()
	if diff := cmp.Diff(names, u.names); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func since(u unpacked) string { return "since=" + url.QueryEscape(u.end.Since) }

func TestBundle(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	day, ripe := today.Format(time.DateOnly), today.AddDate(0, 0, -300)
	l.Put(archivetest.Camera, "b/2.jpg", "two", at(storm.Add(time.Minute)))
	l.Put(archivetest.Camera, "b/1.jpg", "one", at(storm))
	gone := l.Put(archivetest.Camera, "c.jpg", "three", at(storm.AddDate(0, 0, 1)))
	l.Put(archivetest.Camera, "now/1 æ.jpg", "four", at(today.Add(time.Second)), observed(ripe))
	last := l.Put(archivetest.Camera, "now/2.jpg", strings.Repeat("five", 3<<20), at(today.Add(2*time.Second)))
	l.Wait(last)
	const of = "/bundle/allsky-1.tar"
	first := get(l, of)
	first.want(t, "all", "allsky-1/b/1.jpg", "allsky-1/b/2.jpg", "bundle.d/allsky-1/2015-03-17.jsonl", "allsky-1/c.jpg", "bundle.d/allsky-1/2015-03-18.jsonl",
		"allsky-1/now/1 æ.jpg", "allsky-1/now/2.jpg", "bundle.d/allsky-1/"+day+".jsonl")
	if first.files["allsky-1/b/2.jpg"] != "two" || len(first.files["allsky-1/now/2.jpg"]) != 12<<20 || first.end.Objects != 5 || first.end.Bytes != 12<<20+3+3+5+4 {
		t.Errorf("other bytes: %+v", first.end)
	}
	for _, part := range []string{"https://spdx.org/licenses/CC-BY-4.0.html", "https://doi.org/10.5555/thule", "Thule <2026>", "Image: Thule"} {
		if !strings.Contains(first.files["README.txt"], part) {
			t.Errorf("the README does not say %q:\n%s", part, first.files["README.txt"])
		}
	}
	get(l, of+"?from=2015-03-17&to=2015-03-18").want(t, "one day", "allsky-1/b/1.jpg", "allsky-1/b/2.jpg", "bundle.d/allsky-1/2015-03-17.jsonl")
	get(l, of+"?from=2015-03-17T12:00:01Z&to=2015-03-18").want(t, "half a day", "allsky-1/b/2.jpg", "bundle.d/allsky-1/2015-03-17.jsonl")
	get(l, of+"?by=observed&from=2015-03-17T12:00:01Z&to="+ripe.Add(time.Second).Format(time.RFC3339)).want(t, "what was observed", "allsky-1/b/2.jpg", "bundle.d/allsky-1/2015-03-17.jsonl",
		"allsky-1/c.jpg", "bundle.d/allsky-1/2015-03-18.jsonl", "allsky-1/now/1 æ.jpg", "bundle.d/allsky-1/"+day+".jsonl")

	get(l, of+"?"+since(first)).want(t, "nothing changed")
	l.Wait(l.Put(archivetest.Camera, "now/3.jpg", "six", at(today.Add(3*time.Second))))
	second := get(l, of+"?"+since(first))
	second.want(t, "one more", "allsky-1/now/3.jpg", "bundle.d/allsky-1/"+day+".jsonl")
	l.Wait(l.Put(archivetest.Camera, "now/0.jpg", "late", at(today.Add(time.Millisecond))))
	third := get(l, of+"?"+since(second))
	third.want(t, "a late one", "allsky-1/now/0.jpg", "allsky-1/now/1 æ.jpg", "allsky-1/now/2.jpg", "allsky-1/now/3.jpg", "bundle.d/allsky-1/"+day+".jsonl")
	gone.State, gone.Reason = wire.StateRetracted, "a lamp"
	l.Announce(archivetest.Camera, gone)
	l.Until("it is gone", func() bool { return l.Get("/archive/allsky-1/c.jpg").Status == http.StatusGone })
	l.List()
	fourth := get(l, of+"?"+since(third))
	fourth.want(t, "of the month all that is left", "allsky-1/b/1.jpg", "allsky-1/b/2.jpg", "bundle.d/allsky-1/2015-03-17.jsonl", "bundle.d/allsky-1/2015-03-18.jsonl")
	if list := fourth.files["bundle.d/allsky-1/2015-03-18.jsonl"]; !strings.Contains(list, `"path":"c.jpg","state":"Retracted","reason":"a lamp"`) {
		t.Errorf("what is gone is not told: %s", list)
	}
	get(l, of+"?"+since(fourth)).want(t, "only the manifests changed")
}

// The tools that the README names find all digests right.
func TestTools(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"tar", "jq", "sha256sum", "zstd"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(tool + " is not installed")
			}
			t.Skip("install ", tool)
		}
	}
	l := newLab(t)
	for i := range 20 {
		l.Put(archivetest.Camera, fmt.Sprintf("%d/a b.jpg", i), strings.Repeat("x", i*1000), at(storm.Add(time.Duration(i)*6*time.Hour)))
	}
	l.Wait(l.Put(archivetest.Camera, "last.jpg", "last"))
	dir := t.TempDir()
	body := l.Get("/bundle/allsky-1.tar.zst").Body
	if err := os.WriteFile(filepath.Join(dir, "b.tar.zst"), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(in, line string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", line)
		cmd.Dir = filepath.Join(dir, in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	run("", "zstd -dc b.tar.zst | tar -x")
	readme, err := os.ReadFile(filepath.Join(dir, archivetest.Site, "README.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "(cd ") {
			line = strings.ReplaceAll(line, "<instrument>", archivetest.Camera)
			if out := run(archivetest.Site, strings.Replace(line, " --quiet", "", 1)); strings.Count(out, ": OK\n") != 21 {
				t.Errorf("%s:\n%s", line, out)
			}
			return
		}
	}
	t.Errorf("no command:\n%s", readme)
}

func TestForms(t *testing.T) {
	t.Parallel()
	embargo := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: 1000 * time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}}
	l := newLab(t, wire.InstrumentEntry{Instrument: "closed", Access: archivetest.Restricted}, wire.InstrumentEntry{Instrument: "later", Access: embargo})
	l.Put(archivetest.Camera, "a.jpg", "a", at(storm))
	l.Put("closed", "b.jpg", "b", at(storm))
	l.Put("later", "old.jpg", "old", at(storm))
	l.Wait(l.Put("later", "new.jpg", "new"))
	token := []string{"Authorization", "Bearer " + archivetest.Token}
	today := wire.DayOf(time.Now())
	get(l, "/bundle.tar?instrument=later&instrument=allsky-1").want(t, "two, for an anonymous reader", "allsky-1/a.jpg", "bundle.d/allsky-1/2015-03-17.jsonl",
		"later/old.jpg", "bundle.d/later/2015-03-17.jsonl")
	get(l, "/bundle/later.tar", token...).want(t, "for its reader", "later/old.jpg", "bundle.d/later/2015-03-17.jsonl", "later/new.jpg", "bundle.d/later/"+string(today)+".jsonl")
	for path, want := range map[string]int{
		"/bundle/closed.tar": 401, "/bundle.tar?instrument=allsky-1&instrument=closed": 401, "/bundle/nobody.tar": 404, "/bundle/allsky-1": 404, "/bundle/allsky-1.zip": 404, "/bundle.tar": 400,
		"/bundle/allsky-1.tar?from=1899-12-31": 400, "/bundle/allsky-1.tar?from=x": 400, "/bundle/allsky-1.tar?from=2015-03-18&to=2015-03-18": 400,
		"/bundle/allsky-1.tar?by=name": 400, "/bundle/allsky-1.tar?since=x": 400, "/bundle/allsky-1.tar?form=2015-03-18": 400, "/bundle/allsky-1.tar?a=%zz": 400,
		"/bundle/allsky-1.tar?from=2015-01-01&" + since(get(l, "/bundle/allsky-1.tar")): 400,
	} {
		a := l.Get(path)
		if a.Status != want {
			t.Errorf("%s: %d, want %d", path, a.Status, want)
		}
		if strings.HasSuffix(path, ".zip") && !strings.Contains(a.Body, ".tar.zst") {
			t.Errorf("%s does not say what there is: %s", path, a.Body)
		}
	}

	plain := l.Get("/bundle/allsky-1.tar?from=2015-03-17")
	if got := plain.Header.Get("Content-Disposition"); got != `attachment; filename="thule-allsky-1-20150317.tar"` {
		t.Errorf("its name: %s", got)
	}
	for _, c := range []struct {
		path, accept, mediaType, coding string
		compressed                      bool
	}{
		{"/bundle/allsky-1.tar?from=2015-03-17", "gzip, zstd", "application/x-tar", "zstd", true},
		{"/bundle/allsky-1.tar.zst?from=2015-03-17", "zstd", "application/zstd", "", true}, {"/bundle/allsky-1.tar?from=2015-03-17", "gzip", "application/x-tar", "", false},
	} {
		a := l.Get(c.path, "Accept-Encoding", c.accept)
		body := []byte(a.Body)
		if c.compressed {
			z, err := zstd.NewReader(nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err = z.DecodeAll(body, nil); err != nil {
				t.Errorf("%s: %v", c.path, err)
			}
			z.Close()
		}
		if a.Header.Get("Content-Type") != c.mediaType || a.Header.Get("Content-Encoding") != c.coding || !bytes.Equal(body, []byte(plain.Body)) {
			t.Errorf("%s: %v, %d bytes", c.path, a.Header, len(body))
		}
	}
	tag := plain.Header.Get("Etag")
	if a := l.Head("/bundle/allsky-1.tar?from=2015-03-17"); a.Status != 200 || a.Header.Get("Etag") != tag || a.Body != "" {
		t.Errorf("its head: %d %v", a.Status, a.Header)
	}
	if a := l.Get("/bundle/allsky-1.tar?from=2015-03-17", "If-None-Match", tag); a.Status != http.StatusNotModified {
		t.Errorf("asked again: %d", a.Status)
	}
	l.Wait(l.Put(archivetest.Camera, "b.jpg", "b"))
	if a := l.Get("/bundle/allsky-1.tar?from=2015-03-17", "If-None-Match", tag); a.Status != http.StatusOK {
		t.Errorf("asked again after a change: %d", a.Status)
	}
}

// An object that is damaged in the store is left out and reported as damaged, however large it is.
func TestDamaged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	damage := func(r *wire.Record) { r.Digest[0]++ }
	l.Put(archivetest.Camera, "a.jpg", "a", at(storm))
	l.Put(archivetest.Camera, "b.jpg", "b", at(storm), damage)
	l.Put(archivetest.Camera, "c.jpg", strings.Repeat("c", 9<<20), at(storm), damage)
	l.Put(archivetest.Camera, "d.jpg", strings.Repeat("d", 9<<20), at(storm))
	l.Put(archivetest.Camera, "e.jpg", "", at(storm))
	lost := l.Put(archivetest.Camera, "f.jpg", "f", at(storm))
	if err := l.Store.Delete(t.Context(), lost.Key); err != nil {
		t.Fatal(err)
	}
	l.Wait(lost)
	u := get(l, "/bundle/allsky-1.tar")
	u.want(t, "the others", "allsky-1/a.jpg", "allsky-1/d.jpg", "allsky-1/e.jpg", "bundle.d/allsky-1/2015-03-17.jsonl")
	if u.end.Damaged != 3 || strings.Count(u.files["bundle.d/allsky-1/2015-03-17.jsonl"], `"damaged":true`) != 3 || len(u.files["allsky-1/d.jpg"]) != 9<<20 {
		t.Errorf("%+v: %s", u.end, u.files["bundle.d/allsky-1/2015-03-17.jsonl"])
	}
}
