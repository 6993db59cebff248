// SPDX-License-Identifier: Apache-2.0

package content_test

import (
	"testing"

	"github.com/substorm/substorm/ingest-gateway/content"
)

const (
	key        = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n"
	kubeconfig = "apiVersion: v1\nkind: Config\nclusters: []\n"
	png        = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	gzip       = "\x1f\x8b\x08\x00\x00\x00\x00\x00"
)

// TestContradicts: what is certain is said, and of what cannot be known nothing is.
func TestContradicts(t *testing.T) {
	for _, c := range []struct{ declared, head, want string }{
		{"application/gzip", key, "text/plain"},
		{"application/gzip", kubeconfig, "text/plain"},
		{"application/gzip", "GET / HTTP/1.1\r\n", "text/plain"},
		{"application/gzip", png, "image/png"},
		{"application/gzip", "\x00\x01\x02\x03", "application/octet-stream"},
		{"application/gzip", gzip, ""},
		{"application/x-gzip", gzip, ""},
		{"image/png", gzip, "application/gzip"},
		{"image/png", png, ""},
		{"image/png; a=b", png, ""},
		{"image/jpg", "\xff\xd8\xff\xe0", ""},
		{"image/jpeg", "<html><body>sign in", "text/html"},
		{"application/fits", "SIMPLE  =                    T", ""},
		{"image/fits", png, "image/png"},
		{"image/tiff", "II*\x00\x08\x00\x00\x00", ""},
		{"application/zstd", "\x28\xb5\x2f\xfd\x04", ""},
		{"text/csv", png, "image/png"},
		{"application/json", gzip, "application/gzip"},
		{"text/plain", "BMX 2026\n", ""},
		{"text/csv", "a,b\n", ""},
		{"text/plain", "<html>", ""},
		{"image/svg+xml", "<?xml version=\"1.0\"?><svg/>", ""},
		// Nothing is known of these.
		{"application/octet-stream", key, ""},
		{"", key, ""},
		{"no type", key, ""},
		{"image/x-portable-graymap", key, ""},
		{"application/x-hdf5", "user's block", ""},
		{"video/mp4", png, ""},
		{"application/gzip", "", ""},
	} {
		if got := content.Contradicts(c.declared, []byte(c.head)); got != c.want {
			t.Errorf("%s that begins with %q looks like %q, want %q", c.declared, c.head, got, c.want)
		}
	}
}
