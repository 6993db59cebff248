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

// TestUnexpected: what is certain is said, and of what cannot be known nothing is.
func TestUnexpected(t *testing.T) {
	for _, c := range []struct{ declared, head, want string }{
		{"application/gzip", key, "application/x-pem-file"},
		{"application/gzip", kubeconfig, "application/x-kubeconfig"},
		{"application/gzip", "2026-11-29 a log\n", "text/plain"},
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
		{"application/octet-stream", "2026-11-29 a log\n", ""},
		{"", "2026-11-29 a log\n", ""},
		{"no type", "2026-11-29 a log\n", ""},
		{"image/x-portable-graymap", "P2\n", ""},
		{"application/x-hdf5", "user's block", ""},
		{"video/mp4", png, ""},
		{"application/gzip", "", ""},
	} {
		for said, got := range map[string]string{
			"the Instrument": content.Unexpected(c.declared, "", []byte(c.head)), "the sender": content.Unexpected("application/octet-stream", c.declared, []byte(c.head)),
			"both": content.Unexpected(c.declared, c.declared, []byte(c.head)),
		} {
			if got != c.want {
				t.Errorf("%s, said by %s, that begins with %q looks like %q, want %q", c.declared, said, c.head, got, c.want)
			}
		}
	}
	// A sender's media type does not excuse content that the Instrument does not declare, and is checked
	// too if the Instrument's media type has no signature.
	for _, c := range []struct{ declared, said, head, want string }{
		{"image/png", "application/octet-stream", kubeconfig, "application/x-kubeconfig"},
		{"image/png", "text/plain", key, "application/x-pem-file"},
		{"image/png", "text/plain", "2026-11-29 a log\n", "text/plain"},
		{"image/png", "application/gzip", gzip, "application/gzip"},
		{"image/png", "application/octet-stream", png, ""},
		{"image/png", "image/jpeg", png, "image/png"},
		{"application/octet-stream", "application/gzip", gzip, ""},
		{"application/octet-stream", "image/jpeg", "\xff\xd8\xff\xe0", ""},
		{"image/x-portable-graymap", "application/gzip", gzip, ""},
		{"image/x-portable-graymap", "application/gzip", png, "image/png"},
	} {
		if got := content.Unexpected(c.declared, c.said, []byte(c.head)); got != c.want {
			t.Errorf("%s, said to be %s, that begins with %q looks like %q, want %q", c.declared, c.said, c.head, got, c.want)
		}
	}
}

// TestSecrets: a private key and a kubeconfig are expected only where the Instrument declares them, and nothing else is taken for one.
func TestSecrets(t *testing.T) {
	const pem, kube = "application/x-pem-file", "application/x-kubeconfig"
	for head, want := range map[string]string{
		key: pem,
		"-----BEGIN OPENSSH PRIVATE KEY-----\r\nb3Bl":                                                     pem,
		"Bag Attributes\n    localKeyID: 01\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n":                     pem,
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ":                                                     pem,
		`{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\nMI`:                     pem,
		"apiVersion: v1\nkind: Secret\nmetadata: {name: readers}\nstringData: {uni: token}\n":             "application/x-kubernetes-secret",
		"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n":                                    "application/x-nats-credentials",
		"-----BEGIN NATS USER JWT-----\neyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ\n":                 "application/x-nats-credentials",
		"[Interface]\nAddress = 10.0.0.2/24\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n": "application/x-wireguard-config",
		"-----BEGIN CERTIFICATE-----\nMIIB":                                                               "",
		kubeconfig:                                                                                        kube,
		"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: LS0t":                     kube,
		"# mine\nkind: Config\nusers: []\n":                                                               kube,
		"clusters:\n- cluster: {}\ncurrent-context: a\nkind: Config\n":                                    kube,
		`{"kind":"Config","apiVersion":"v1","preferences":{}}`:                                            kube,
		"{\n  \"apiVersion\": \"v1\",\n  \"clusters\": []}":                                               kube,
		"apiVersion: v1\nkind: ConfigMap\ndata: {}\n":                                                     "",
		"apiVersion: apps/v1\nkind: Deployment\n":                                                         "",
		"users: 3\n": "",
	} {
		for _, declared := range []string{"", "application/octet-stream", "text/plain", "application/json", "application/yaml", "video/mp4", "application/x-hdf5", "application/x-netcdf", "image/x-portable-graymap"} {
			if got := content.Unexpected(declared, "application/x-pem-file", []byte(head)); got != want {
				t.Errorf("%s that begins with %q looks like %q, want %q", declared, head, got, want)
			}
		}
		if got := content.Unexpected(want, "", []byte(head)); got != "" {
			t.Errorf("%q, declared as %s, looks like %q", head, want, got)
		}
	}
	if got := content.Unexpected("image/png", "", []byte(png+key)); got != "" {
		t.Errorf("a picture with a key in it looks like %q", got)
	}
}
