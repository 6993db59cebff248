// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func TestObject(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	body := noise(200_000)
	r := l.put(camera, "2015/03/17/image 1.jpg", body)
	const at = "/archive/allsky-1/2015/03/17/image%201.jpg"
	tag, modified := etag(r.Digest), storm.Format(http.TimeFormat)

	whole := l.get(at)
	whole.want(t, "the object", 200)
	if whole.body != body {
		t.Fatalf("%d bytes, want the %d that were stored", len(whole.body), len(body))
	}
	head := l.ask(http.MethodHead, at)
	head.want(t, "HEAD", 200)
	for name, want := range map[string]string{
		"ETag": tag, "Last-Modified": modified, "Content-Length": "200000", "Content-Type": "image/jpeg", "Accept-Ranges": "bytes",
		"Repr-Digest": reprDigest(r.Digest), "Cache-Control": "public, max-age=10, stale-while-revalidate=10",
		"Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff",
	} {
		if got := whole.header.Get(name); got != want {
			t.Errorf("GET: %s %q, want %q", name, got, want)
		}
		if got := head.header.Get(name); got != want {
			t.Errorf("HEAD: %s %q, want %q", name, got, want)
		}
	}
	if links := strings.Join(whole.header.Values("Link"), " "); links != `<https://spdx.org/licenses/CC-BY-4.0.html>; rel="license" <https://doi.org/10.5555/thule>; rel="cite-as"` {
		t.Errorf("Link %s", links)
	}
	if exposed := whole.header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "Repr-Digest") || !strings.Contains(exposed, "ETag") {
		t.Errorf("exposed %q", exposed)
	}

	// Asking whether it changed takes nothing from the store, whatever query is added.
	before := l.gets.Load()
	for name, c := range map[string]struct {
		query   string
		headers []string
		status  int
	}{
		"its tag":                             {"", []string{"If-None-Match", tag}, 304},
		"its tag among others":                {"", []string{"If-None-Match", `W/"x", ` + tag + `, "y"`}, 304},
		"its tag in a second line":            {"", []string{"If-None-Match", `"x"`, "If-None-Match", tag}, 304},
		"its tag, weak":                       {"", []string{"If-None-Match", "W/" + tag}, 304},
		"any tag":                             {"", []string{"If-None-Match", "*"}, 304},
		"the time":                            {"", []string{"If-Modified-Since", modified}, 304},
		"a later time":                        {"", []string{"If-Modified-Since", storm.AddDate(1, 0, 0).Format(http.TimeFormat)}, 304},
		"a cache is to be busted":             {"?t=1426593600123", []string{"If-None-Match", tag}, 304},
		"a cache is to be busted, otherwise":  {"?1426593600123", []string{"If-Modified-Since", modified}, 304},
		"a cache is to be busted, of nothing": {"?%zz&;", []string{"If-None-Match", tag}, 304},
		"HEAD with a query":                   {"?_=1", nil, 200},
		"another is meant":                    {"", []string{"If-Match", `"x"`}, 412},
		"this is meant, and weak":             {"", []string{"If-Match", "W/" + tag}, 412},
		"an older one is meant":               {"", []string{"If-Unmodified-Since", storm.Add(-time.Hour).Format(http.TimeFormat)}, 412},
	} {
		method := http.MethodGet
		if c.status == 200 {
			method = http.MethodHead
		}
		a := l.ask(method, at+c.query, c.headers...)
		a.want(t, name, c.status)
		if c.status == 304 && (a.header.Get("ETag") != tag || a.body != "" || a.header.Get("Cache-Control") == "") {
			t.Errorf("%s: %v %q", name, a.header, a.body)
		}
		if size := headerBytes(a.header); c.status == 304 && size > len(body)/400 {
			t.Errorf("%s: the answer has some %d bytes", name, size)
		}
	}
	if n := l.gets.Load(); n != before {
		t.Errorf("%d requests to the store for conditions alone", n-before)
	}
	for name, headers := range map[string][]string{
		"another tag": {"If-None-Match", `"x"`}, "an earlier time": {"If-Modified-Since", storm.Add(-time.Second).Format(http.TimeFormat)},
		"the tag counts, not the time": {"If-None-Match", `"x"`, "If-Modified-Since", modified}, "nonsense": {"If-None-Match", "x", "If-Modified-Since", "yesterday"},
		"this is meant": {"If-Match", tag}, "not since": {"If-Unmodified-Since", modified},
	} {
		if a := l.get(at, headers...); a.status != 200 || a.body != body {
			t.Errorf("%s: %d with %d bytes", name, a.status, len(a.body))
		}
	}
	for want, said := range map[string]bool{"sha-256=1": true, "sha-512=3, sha-256=10": true, "sha-256=0": false, "sha-512=1": false, "nonsense;;": true} {
		if got := l.ask(http.MethodHead, at, "Want-Repr-Digest", want).header.Get("Repr-Digest"); (got != "") != said {
			t.Errorf("Want-Repr-Digest %s: %q", want, got)
		}
	}
	if got := l.get(at, "If-None-Match", tag, "Want-Repr-Digest", "sha-256=1").header.Get("Repr-Digest"); got != reprDigest(r.Digest) {
		t.Errorf("304 with Want-Repr-Digest: %q", got)
	}
	l.ask(http.MethodPut, at).want(t, "PUT", 405)
	preflight := l.ask(http.MethodOptions, at, "Origin", "https://pages.example", "Access-Control-Request-Method", "GET")
	if preflight.status != 204 || !strings.Contains(preflight.header.Get("Access-Control-Allow-Headers"), "If-None-Match") {
		t.Errorf("preflight: %d %v", preflight.status, preflight.header)
	}
}

func headerBytes(h http.Header) int {
	var b bytes.Buffer
	_ = h.Write(&b)
	return b.Len() + len("HTTP/1.1 304 Not Modified\r\n\r\n")
}

func TestRanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	small, large := noise(100_000), noise(9<<20)
	const smallAt, largeAt = "/archive/allsky-1/small.bin", "/archive/allsky-1/large.bin"
	r := l.put(camera, "small.bin", small)
	l.put(camera, "large.bin", large)
	l.put(camera, "empty.bin", "")
	for _, o := range []struct{ at, body string }{{smallAt, small}, {largeAt, large}} {
		size := len(o.body)
		for asked, want := range map[string][2]int{
			"0-99": {0, 100}, "100-": {100, size}, "-100": {size - 100, size}, "0-0": {0, 1}, "70000-80000": {70_000, 80_001},
			fmt.Sprintf("%d-99999999999999999999999", size-1): {size - 1, size}, "1-" + strconv.Itoa(size): {1, size},
		} {
			a := l.get(o.at, "Range", "bytes="+asked)
			a.want(t, asked, 206)
			if a.body != o.body[want[0]:want[1]] {
				t.Errorf("%s of %s: %d bytes", asked, o.at, len(a.body))
			}
			if got, want := a.header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", want[0], want[1]-1, size); got != want {
				t.Errorf("%s: Content-Range %q, want %q", asked, got, want)
			}
		}
		for _, asked := range []string{"bytes=0-", "BYTES=0-", "bytes=-99999999999999999999", "bytes=5-2", "bytes=a-b", "bytes=-", "bytes=", "lines=0-1", "bytes=0-1,5-6", "bytes=+1-2", "bytes=--1", "bytes=0-99999999999999999999x"} {
			a := l.get(o.at, "Range", asked)
			if (a.status != 200 && a.status != 206) || a.body != o.body {
				t.Errorf("%s of %s: %d with %d bytes", asked, o.at, a.status, len(a.body))
			}
		}
		for _, asked := range []string{"bytes=99999999-", "bytes=99999999999999999999999-", "bytes=-0"} {
			a := l.get(o.at, "Range", asked)
			a.want(t, asked, 416)
			if a.header.Get("Content-Range") != fmt.Sprintf("bytes */%d", size) {
				t.Errorf("%s: %v", asked, a.header)
			}
		}
	}
	for condition, status := range map[string]int{
		etag(r.Digest): 206, storm.Format(http.TimeFormat): 206, `"x"`: 200, "W/" + etag(r.Digest): 200, storm.Add(time.Second).Format(http.TimeFormat): 200, "x": 200,
	} {
		l.get(smallAt, "Range", "bytes=0-9", "If-Range", condition).want(t, "If-Range "+condition, status)
	}
	if a := l.get("/archive/allsky-1/empty.bin", "Range", "bytes=0-"); a.status != 200 || a.body != "" {
		t.Errorf("a range of nothing: %d %q", a.status, a.body)
	}
}

// Members of packs are objects like others.
func TestMember(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	var pack bytes.Buffer
	w := tar.NewWriter(&pack)
	key := wire.PackKey(site, storm, "gateway-0", "one", 1)
	for _, body := range []string{"first", "second"} {
		if err := w.WriteHeader(&tar.Header{Name: body, Size: int64(len(body)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		offset := int64(pack.Len())
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
		l.put(camera, body+".txt", body, func(r *wire.Record) {
			r.Key, r.Offset, r.Length, r.MediaType = key, offset, r.Size, "text/plain"
			r.ID = wire.MemberID(key, offset)
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l.store(key, pack.String())
	for _, body := range []string{"first", "second"} {
		a := l.get("/archive/allsky-1/" + body + ".txt")
		if a.status != 200 || a.body != body || a.header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %d %q %v", body, a.status, a.body, a.header)
		}
		if a := l.get("/archive/allsky-1/"+body+".txt", "Range", "bytes=1-2"); a.body != body[1:3] {
			t.Errorf("of %s: %q", body, a.body)
		}
	}
}

// Objects that memory holds are served from it, also while the store is unavailable.
func TestHot(t *testing.T) {
	t.Parallel()
	l := newLabOn(t, testenv.MinIO(t, testenv.MinIOOptions{}), nil)
	body := noise(200_000)
	l.put(camera, "hot.jpg", body)
	l.put(camera, "cold.jpg", noise(1000))
	l.put(camera, "large.bin", noise(9<<20))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if a := l.get("/archive/allsky-1/hot.jpg"); a.status != 200 || a.body != body {
				t.Errorf("%d with %d bytes", a.status, len(a.body))
			}
		})
	}
	all.Wait()
	if n := l.gets.Load(); n != 1 {
		t.Errorf("%d requests to the store for one object", n)
	}
	l.minio.Kill()
	if a := l.get("/archive/allsky-1/hot.jpg"); a.status != 200 || a.body != body {
		t.Errorf("without the store: %d with %d bytes", a.status, len(a.body))
	}
	for _, name := range []string{"cold.jpg", "large.bin"} {
		a := l.get("/archive/allsky-1/" + name)
		a.want(t, name+" without the store", 503)
		if a.header.Get("Retry-After") == "" || a.header.Get("ETag") != "" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", name, a.header)
		}
		l.ask(http.MethodHead, "/archive/allsky-1/"+name).want(t, "HEAD of "+name, 200)
	}
}

// If memory is short, an object is read twice instead of being held: it is complete all the
// same, and a damaged one is not sent.
func TestWithoutMemory(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *config) { c.Memory = 1000 })
	body := noise(200_000)
	l.put(camera, "a.jpg", body)
	if a := l.get("/archive/allsky-1/a.jpg"); a.status != 200 || a.body != body {
		t.Errorf("%d with %d bytes", a.status, len(a.body))
	}
	if a := l.get("/archive/allsky-1/a.jpg", "Range", "bytes=100000-"); a.status != 206 || a.body != body[100_000:] {
		t.Errorf("%d with %d bytes", a.status, len(a.body))
	}
	r := l.put(camera, "b.jpg", body[1:])
	l.store(r.Key, body[:len(body)-1])
	l.get("/archive/allsky-1/b.jpg").want(t, "damaged", 502)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	const at = "/archive/allsky-1/2015/day.mp4"
	l.put(camera, "2015/day.mp4", "first", func(r *wire.Record) { r.State = wire.StateSuperseded })
	second := l.put(camera, "2015/day.mp4", "second", func(r *wire.Record) {
		r.Version, r.Key, r.ReceivedAt = 2, wire.NamedKey(site, camera, "2015/day.mp4", 2), storm.Add(time.Hour)
	})
	for query, want := range map[string]string{"": "second", "?version=1": "first", "?version=2": "second", "?x=1&version=1": "first"} {
		if a := l.get(at + query); a.status != 200 || a.body != want {
			t.Errorf("%q: %d %q, want %q", query, a.status, a.body, want)
		}
	}
	for _, query := range []string{"?version=3", "?version=0", "?version=-1", "?version=x", "?version=99999999999999999999"} {
		l.get(at+query).want(t, query, 404)
	}
	l.get(at, "If-None-Match", etag(second.Digest)).want(t, "the new one", 304)
	l.catalog.change(camera, "2015/day.mp4", func(r *wire.Record) {
		if r.Version == 2 {
			r.State = wire.StateRetracted
		}
	})
	l.get(at).want(t, "retracted", 410)
	l.get(at, "If-None-Match", etag(second.Digest)).want(t, "retracted, for who has it", 410)
	l.get(at+"?version=1").want(t, "the one before", 200)
	l.put(camera, "purged.jpg", "purged", func(r *wire.Record) {
		r.State, r.Reason, r.PurgedAt = wire.StatePurged, "a person is in the picture", &storm
	})
	purged := l.get("/archive/allsky-1/purged.jpg")
	purged.want(t, "purged", 410)
	if !strings.Contains(purged.body, "was purged at "+wire.FormatTime(storm)+": a person is in the picture") {
		t.Errorf("purged: %s", purged.body)
	}
	l.put(camera, "expired.jpg", "expired", func(r *wire.Record) {
		r.State, r.Reason, r.PurgedAt, r.ChangedBy = wire.StatePurged, "expired: kept for 48h", &storm, wire.ByRetention
	})
	expired := l.get("/archive/allsky-1/expired.jpg")
	expired.want(t, "expired", 410)
	if !strings.Contains(expired.body, "expired at "+wire.FormatTime(storm)+": kept for 48h") || strings.Contains(expired.body, "purged") {
		t.Errorf("expired: %s", expired.body)
	}
	l.put(camera, "again.jpg", "again", func(r *wire.Record) { r.State = wire.StateDuplicate })
	l.get("/archive/allsky-1/again.jpg").want(t, "a duplicate", 404)
}

// No path leads elsewhere, and each is answered.
func TestPaths(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.put(camera, "a/b.jpg", "x")
	l.put(camera, "a/100%25: #?&\"<æ>.jpg", "odd", func(r *wire.Record) { r.Key = wire.NamedKey(site, camera, "odd", 1) })
	for path, status := range map[string]int{
		"/archive/allsky-1/a/b.jpg": 200, "/archive/allsky-1/%61/b%2Ejpg": 200, "/archive/allsky-1/a/100%2525%3A%20%23%3F%26%22%3C%C3%A6%3E.jpg": 200,
		"/archive/allsky-1/a%2Fb.jpg": 400, "/archive/allsky-1/a/b.jpg%00": 400, "/archive/allsky-1/a/%2e%2e%2fb.jpg": 400, "/archive/allsky-1/a%5Cb.jpg": 400,
		"/archive/allsky-1/%FF": 400, "/archive/allsky-1/" + strings.Repeat("a", 256): 400, "/archive/allsky-1/" + strings.Repeat("a/", 1500): 400,
		"/archive/allsky-1/" + strings.Repeat("a/", 2500): 400, "/archive/allsky-1/a/%0Ab": 400, "/archive/allsky-1/%20": 400,
		"/archive/nobody/x": 404, "/archive/allsky-1/x": 404, "/archive/allsky-1/x/": 404, "/archive/allsky-1/a/b.jpg/": 404, "/archive/%61llsky-1/a/b.jpg": 200,
		"/archive/allsky-1": 301, "/archive/allsky-1/a": 301, "/archive": 307, "/archive/allsky-1/a//b.jpg": 307, "/archive/allsky-1/a/../a/b.jpg": 307,
		"/archive/../../etc/passwd": 307, "/archive/allsky-1/./": 307, "/archive/%2F": 400, "/archive/a%2Fb/c": 400,
	} {
		l.get(path).want(t, path, status)
	}
	if a := l.get("/archive/allsky-1/a?x=1"); a.header.Get("Location") != "/archive/allsky-1/a/?x=1" {
		t.Errorf("a directory without its slash: %v", a.header)
	}
	if a := l.get("/archive/allsky-1"); a.header.Get("Location") != "/archive/allsky-1/" {
		t.Errorf("an instrument without its slash: %v", a.header)
	}
}

// A client that goes away in the middle costs nothing but its connection.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.put(camera, "large.bin", noise(9<<20))
	for range 5 {
		resp, err := client.Get(l.url + "/archive/allsky-1/large.bin")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if a := l.get("/archive/allsky-1/large.bin"); a.status != 200 || len(a.body) != 9<<20 {
		t.Errorf("%d with %d bytes", a.status, len(a.body))
	}
}
