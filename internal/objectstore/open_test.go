// SPDX-License-Identifier: Apache-2.0

package objectstore_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, cfg := range map[string]objectstore.Config{
		"no scheme":              {Endpoint: "minio:9000", Bucket: "b"},
		"another scheme":         {Endpoint: "ftp://minio:9000", Bucket: "b"},
		"no bucket":              {Endpoint: "http://minio:9000"},
		"no files":               {Endpoint: "http://minio:9000", Bucket: "b", CredentialsDir: dir},
		"ca.crt that is not PEM": {Endpoint: "https://minio:9000", Bucket: "b", TLSDir: badTLS(t)},
	} {
		if _, err := objectstore.Open(cfg); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func badTLS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, objectstore.FileCA), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Credentials and TLS come from mounted Secrets.
func TestFiles(t *testing.T) {
	server := testenv.MinIO(t, testenv.MinIOOptions{TLS: true})
	credentials := t.TempDir()
	for name, value := range map[string]string{
		objectstore.FileAccessKeyID: server.AccessKeyID + "\n", objectstore.FileSecretAccessKey: server.SecretAccessKey,
	} {
		if err := os.WriteFile(filepath.Join(credentials, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := objectstore.Config{Endpoint: server.URL(), Bucket: "files", CredentialsDir: credentials, TLSDir: server.CA.Dir(t, "us")}
	if _, err := open(t, cfg).EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.TLSDir = ""
	if err := open(t, cfg).CheckBucket(t.Context()); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("a server that no authority of ours signed: %v", err)
	}
}

// A body that ends, or a server that goes away, while bytes are on their way.
func TestShortReads(t *testing.T) {
	server := testenv.MinIO(t, testenv.MinIOOptions{})
	store := server.Bucket(t, "short")
	big := random(t, 8<<20)
	if err := put(t.Context(), store, "big", big, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	proxy := cutter(t, server.URL(), 1<<20)
	cfg := server.Config("short")
	cfg.Endpoint = proxy
	body, _, err := open(t, cfg).Get(t.Context(), "big", objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	if err == nil || n >= int64(len(big)) {
		t.Fatalf("read %d of %d bytes with error %v", n, len(big), err)
	}
	// The body is sent again from its beginning; the cut comes each time.
	if err := put(t.Context(), open(t, cfg), "cut", big, objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("put through a line that breaks: %v", err)
	}
	if _, err := store.Head(t.Context(), "cut"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("half an object is there: %v", err)
	}
}

// A server that takes a connection and then nothing more is given up, whether
// it is to take bytes, to answer, or to send an object.
func TestStall(t *testing.T) {
	server := testenv.MinIO(t, testenv.MinIOOptions{})
	server.Bucket(t, "stall")
	cfg := server.Config("stall")
	cfg.StallTimeout = 500 * time.Millisecond
	store := open(t, cfg)
	big := random(t, 32<<20)
	if err := put(t.Context(), store, "big", big, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	body, _, err := store.Get(t.Context(), "big", objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	server.Pause()
	defer server.Continue()
	if n, err := io.Copy(io.Discard, body); err == nil {
		t.Errorf("read %d bytes from a stopped server", n)
	}
	if err := put(t.Context(), store, "more", big, objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	if _, err := store.Head(t.Context(), "big"); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("head: %v", err)
	}
}

// cutter forwards to a server and cuts each connection after so many bytes in
// one direction.
func cutter(t *testing.T, endpoint string, after int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	target := string(bytes.TrimPrefix([]byte(endpoint), []byte("http://")))
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.CopyN(way[1], way[0], after)
					in.Close()
					out.Close()
				}()
			}
		}
	}()
	return "http://" + l.Addr().String()
}
