// SPDX-License-Identifier: Apache-2.0

package http

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// FuzzDigests: a digest is taken only where the header says it whole.
func FuzzDigests(f *testing.F) {
	whole := "sha-256=:" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + ":"
	for _, seed := range []string{whole, "sha-512=:AA==:, " + whole, whole + ";x=1", "sha-256=:AA==:", "sha-256=?1", "sha-256", "", ",", "sha-256=:", whole + ", " + whole, "Sha-256=:AA==:", "sha-256=(:AA==:)"} {
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		h := http.Header{"Repr-Digest": {a, b}}
		if b == "" {
			h = http.Header{"Content-Digest": {a}}
		}
		all, err := digestsOf(h)
		if err != nil {
			return
		}
		digest, said := all.sha256()
		if !said {
			return
		}
		if !strings.Contains(a+b, base64.StdEncoding.EncodeToString(digest[:])[:42]) {
			t.Errorf("%q, %q: read as %s", a, b, digest)
		}
		if all.check(digest) != nil || all.check(wire.Digest{1, 2, 3}) == nil && digest != (wire.Digest{1, 2, 3}) {
			t.Errorf("%q, %q: check", a, b)
		}
	})
}

// FuzzUploadMetadata: what is read writes back as the same pairs.
func FuzzUploadMetadata(f *testing.F) {
	for _, seed := range []string{"filename ZnJhbWU=", "filename ZnJhbWU=,filetype aW1hZ2UvcG5n", "a,b", "a ,b ", "", ",", "a ??", "a YQ==,a YQ==", " a YQ== , b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		said, err := parseUploadMetadata(header)
		if err != nil {
			return
		}
		var pairs []string
		for key, value := range said {
			if strings.ContainsAny(key, " ,") || key == "" {
				t.Fatalf("%q has the key %q", header, key)
			}
			pairs = append(pairs, key+" "+base64.StdEncoding.EncodeToString([]byte(value)))
		}
		again, err := parseUploadMetadata(strings.Join(pairs, ","))
		if len(header) <= maxUploadMetadata/2 && (err != nil || len(again) != len(said)) {
			t.Fatalf("%q is read as %v, and that as %v, %v", header, said, again, err)
		}
		for key, value := range said {
			if err == nil && again[key] != value {
				t.Errorf("%q: %q is %q, and then %q", header, key, value, again[key])
			}
		}
	})
}

// FuzzPaths: whatever a request asks for, a name that is taken makes a key below
// the instrument's own prefix, which a URL spells and a parser finds again.
func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"/in/camera/frame.jpg", "/in/camera/2026/frame%207.jpg", "/in/camera/../x", "/in/camera/%2e%2e/x", "/in//x", "/in/camera/", "/in/camera", "/", "/in/camera/.uploads/0123456789abcdef0123456789abcdef", "/in/camera/a%00b", "/in/camera/a%2f%2fb", "/in/camera/\\x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		instrument, name, ok := wire.ParseUploadPath(u.Path)
		if !ok || wire.CheckSentName(name) != nil {
			return
		}
		if instrument == "" || strings.Contains(instrument, "/") {
			t.Fatalf("%q is for instrument %q", raw, instrument)
		}
		key := wire.NamedKey("hub", instrument, name, 1)
		if !strings.HasPrefix(key, wire.InstrumentPrefix("hub", instrument)+"n/") || wire.CheckKey(key) != nil {
			t.Errorf("%q becomes key %q", raw, key)
		}
		for _, part := range strings.Split(key, "/") {
			if part == ".." || part == "." || part == "" && instrument != "" {
				t.Errorf("%q becomes key %q", raw, key)
			}
		}
		at, err := url.ParseRequestURI((&url.URL{Path: "/" + key}).EscapedPath())
		if err != nil || at.Path != "/"+key {
			t.Errorf("%q: its Location is read as %v, %v", raw, at, err)
		}
	})
}

// FuzzMediaType: what is taken fits into metadata and a header.
func FuzzMediaType(f *testing.F) {
	for _, seed := range []string{"image/jpeg", "text/plain; charset=utf-8", "multipart/form-data; boundary=x", "", "x", "a/b;c", "application/x-www-form-urlencoded"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, said string) {
		mediaType, err := mediaTypeOf(http.Header{"Content-Type": {said}})
		if err == nil && (len(mediaType) > maxMediaType || strings.ContainsAny(mediaType, "\r\n\x00")) {
			t.Errorf("%q is taken as %q", said, mediaType)
		}
	})
}
