// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/internal/wire"
)

// lines is text of about so many bytes, as an instrument writes it.
func lines(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "2015-03-17T12:00:%02d.%03dZ,%d,%d,%d\n", i/1000%60, i%1000, 11000+i%37, -540+i%11, 51000-i%23)
	}
	return b.String()
}

// decoded is the body of an answer without its coding.
func (a answer) decoded(t *testing.T) string {
	t.Helper()
	var plain io.Reader = strings.NewReader(a.body)
	var err error
	switch coding := a.header.Get("Content-Encoding"); coding {
	case "":
	case "gzip":
		plain, err = gzip.NewReader(plain)
	case "zstd":
		plain, err = zstd.NewReader(plain)
	default:
		t.Errorf("coding %q", coding)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil || a.err != nil {
		t.Errorf("%s: %v %v", a.header.Get("Content-Encoding"), err, a.err)
	}
	return string(text)
}

// Text is compressed for clients that accept it, under the weak form of its tag; all other headers
// describe the plain bytes.
func TestCoding(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	body := lines(300_000)
	text := func(r *wire.Record) { r.MediaType = "text/csv; charset=utf-8" }
	r := l.put(camera, "a.csv", body, text)
	const at = "/archive/allsky-1/a.csv"
	tag := etag(r.Digest)
	for accepted, coding := range map[string]string{
		"": "", "identity": "", "br": "", "gzip": "gzip", "zstd": "zstd", "gzip, deflate, br, zstd": "zstd", "gzip;q=0": "", "zstd;q=0, gzip;q=0.5": "gzip",
	} {
		a := l.get(at, "Accept-Encoding", accepted)
		a.want(t, accepted, 200)
		if a.decoded(t) != body || a.header.Get("Content-Encoding") != coding || coding != "" && len(a.body) > len(body)/3 {
			t.Errorf("%q: %d bytes, %v", accepted, len(a.body), a.header)
		}
		want := map[string]string{"ETag": tag, "Repr-Digest": reprDigest(r.Digest), "Accept-Ranges": "bytes", "Content-Length": fmt.Sprint(len(body))}
		if coding != "" {
			want = map[string]string{"ETag": "W/" + tag, "Repr-Digest": "", "Accept-Ranges": "", "Content-Length": ""}
		}
		want["Vary"], want["Content-Type"] = "Accept-Encoding", "text/csv; charset=utf-8"
		head := l.ask(http.MethodHead, at, "Accept-Encoding", accepted)
		head.want(t, "HEAD", 200)
		for name, value := range want {
			if got := a.header.Get(name); got != value {
				t.Errorf("GET %q: %s %q, want %q", accepted, name, got, value)
			}
			if got := head.header.Get(name); got != value {
				t.Errorf("HEAD %q: %s %q, want %q", accepted, name, got, value)
			}
		}
		if head.header.Get("Content-Encoding") != coding {
			t.Errorf("HEAD %q: %v", accepted, head.header)
		}
		for _, has := range []string{tag, "W/" + tag} {
			same := l.get(at+"?t=1", "Accept-Encoding", accepted, "If-None-Match", has)
			same.want(t, "unchanged", 304)
			if same.header.Get("ETag") != want["ETag"] || same.header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("304 for %q: %v", accepted, same.header)
			}
		}
		wanted := l.get(at, "Accept-Encoding", accepted, "Want-Repr-Digest", "sha-256=1")
		if wanted.body != body || wanted.header.Get("Repr-Digest") != reprDigest(r.Digest) || wanted.header.Get("ETag") != tag {
			t.Errorf("%q with its digest: %v", accepted, wanted.header)
		}
		part := l.get(at, "Accept-Encoding", accepted, "Range", "bytes=1000-1999", "If-Range", tag)
		if part.status != 206 || part.body != body[1000:2000] || part.header.Get("ETag") != tag || part.header.Get("Content-Encoding") != "" {
			t.Errorf("a part for %q: %d %v", accepted, part.status, part.header)
		}
		if whole := l.get(at, "Accept-Encoding", accepted, "Range", "bytes=1000-", "If-Range", "W/"+tag); whole.status != 200 || whole.body != body {
			t.Errorf("a part of what was coded, for %q: %d %v", accepted, whole.status, whole.header)
		}
	}
	if n := l.gets.Load(); n != 1 {
		t.Errorf("%d requests to the store for one object", n)
	}
}

// Objects that are compressed already, or small, are sent as they are, and so are all objects
// if memory is short.
func TestNoCoding(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	body := lines(100_000)
	for mediaType, coded := range map[string]bool{
		"text/plain": true, "Text/CSV": true, "application/json": true, "application/geo+json; charset=utf-8": true, "image/svg+xml": true, "application/XML": true,
		"image/jpeg": false, "application/octet-stream": false, "video/mp4": false, "application/gzip": false, "application/fits": false, "": false,
	} {
		name := strings.NewReplacer("/", "-", ";", "-", " ", "").Replace("x" + mediaType)
		r := l.put(camera, name, body, func(r *wire.Record) { r.MediaType = mediaType })
		a := l.get("/archive/allsky-1/"+name, "Accept-Encoding", "gzip")
		if is := a.header.Get("Content-Encoding") != ""; is != coded || a.decoded(t) != body || (a.header.Get("Vary") != "") != coded {
			t.Errorf("%q: %v", mediaType, a.header)
		}
		if !coded && a.header.Get("Repr-Digest") != reprDigest(r.Digest) {
			t.Errorf("%q: %v", mediaType, a.header)
		}
	}
	text := func(r *wire.Record) { r.MediaType = "text/plain" }
	l.put(camera, "small.txt", lines(100), text)
	l.put(camera, "large.txt", lines(8<<20+1), text)
	for _, name := range []string{"small.txt", "large.txt"} {
		if a := l.get("/archive/allsky-1/"+name, "Accept-Encoding", "gzip"); a.status != 200 || a.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
	damaged := l.put(camera, "damaged.txt", body+".", text)
	l.store(damaged.Key, body+"!")
	if a := l.get("/archive/allsky-1/damaged.txt", "Accept-Encoding", "gzip"); a.status != 502 || a.header.Get("Content-Encoding") != "" {
		t.Errorf("damaged: %d %v", a.status, a.header)
	}

	for _, memory := range []int64{1000, 1 << 20} { // for neither it nor an encoder, for it alone
		l := newLab(t, func(c *config) { c.Memory = memory })
		r := l.put(camera, "a.txt", body, text)
		a := l.get("/archive/allsky-1/a.txt", "Accept-Encoding", "zstd")
		if a.status != 200 || a.body != body || a.header.Get("ETag") != etag(r.Digest) || a.header.Get("Content-Encoding") != "" {
			t.Errorf("with %d bytes of memory: %d %v", memory, a.status, a.header)
		}
	}
}
