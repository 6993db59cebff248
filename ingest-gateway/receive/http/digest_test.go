// SPDX-License-Identifier: Apache-2.0

package http

import (
	"encoding/base64"
	"net/http"
	"testing"
)

// Digests of other algorithms are left alone, and what is no digest is refused, whatever
// it is called.
func TestDigestHeaders(t *testing.T) {
	bytes := func(n int) string { return ":" + base64.StdEncoding.EncodeToString(make([]byte, n)) + ":" }
	for header, want := range map[string]struct{ ok, said bool }{
		"sha-256=" + bytes(32):                            {true, true},
		"sha-512=" + bytes(64) + ", sha-256=" + bytes(32): {true, true},
		"sha-512=" + bytes(64):                            {true, false},
		"crc32c=" + bytes(4):                              {true, false},
		"later=" + bytes(7) + ";q=1":                      {true, false},
		"junk":                                            {},
		"sha-256":                                         {},
		"sha-256=" + bytes(31):                            {},
		"sha-256=" + bytes(33):                            {},
		"sha-256=nonsense":                                {},
		`sha-256="` + bytes(32) + `"`:                     {},
		"sha-256=" + bytes(32) + ", junk":                 {},
		"md5=d41d8cd98f00b204e9800998ecf8427e":            {},
		"sha-512=(" + bytes(64) + ")":                     {},
		"SHA-256=" + bytes(32):                            {},
		"sha-256=:?:":                                     {},
		"9f86d081884c7d659a2feaa0c55ad015":                {},
	} {
		for _, name := range digestHeaders {
			all, err := digestsOf(http.Header{name: {header}})
			_, said := all.sha256()
			if (err == nil) != want.ok || said != want.said {
				t.Errorf("%s: %s: %v, %v; want %+v", name, header, all, err, want)
			}
		}
	}
}

// A digest that comes behind the bytes of an upload is refused before they are taken.
func TestUploadDigestsBehindTheBytes(t *testing.T) {
	for _, name := range digestHeaders {
		q := &request{r: &http.Request{Trailer: http.Header{name: nil}}}
		if _, _, err := q.checksums(); err == nil {
			t.Errorf("%s as a trailer passes", name)
		}
	}
}
