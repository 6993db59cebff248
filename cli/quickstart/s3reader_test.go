// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/substorm/substorm/internal/testenv"
)

// TestReaderOnlyReads: the user that the command makes lists and reads every bucket, and is refused everything else.
func TestReaderOnlyReads(t *testing.T) {
	server := testenv.MinIO(t, testenv.MinIOOptions{TLS: true})
	reader := S3User{"reader", "a secret of the reader"}
	dir := t.TempDir()
	for name, text := range map[string]string{"ca.crt": string(server.CA.PEM),
		"root/accessKeyID": server.AccessKeyID, "root/secretAccessKey": server.SecretAccessKey,
		"reader/accessKeyID": reader.AccessKeyID, "reader/secretAccessKey": reader.SecretAccessKey + "\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clientOf := func(u S3User) *minio.Client {
		c, err := minio.New(strings.TrimPrefix(server.URL(), "https://"), &minio.Options{Secure: true,
			Creds: credentials.NewStaticV4(u.AccessKeyID, u.SecretAccessKey, ""), Transport: &http.Transport{TLSClientConfig: server.CA.ClientTLS()}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx := t.Context()
	root := clientOf(S3User{server.AccessKeyID, server.SecretAccessKey})
	put := func(c *minio.Client, key string) error {
		_, err := c.PutObject(ctx, "archive", key, strings.NewReader("frame"), 5, minio.PutObjectOptions{})
		return err
	}
	if err := root.MakeBucket(ctx, "archive", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := put(root, "o/frame"); err != nil {
		t.Fatal(err)
	}

	for range 2 { // again is harmless
		cmd := s3ReaderCommand()
		cmd.SetArgs([]string{"--endpoint", server.URL(), "--ca-file", filepath.Join(dir, "ca.crt"), "--root-dir", filepath.Join(dir, "root"), "--reader-dir", filepath.Join(dir, "reader")})
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c := clientOf(reader)
	if is, err := c.BucketExists(ctx, "archive"); err != nil || !is {
		t.Errorf("the bucket is not seen: %v, %v", is, err)
	}
	var listed []string
	for o := range c.ListObjects(ctx, "archive", minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		listed = append(listed, o.Key)
	}
	if len(listed) != 1 || listed[0] != "o/frame" {
		t.Errorf("listed %v", listed)
	}
	if _, err := c.StatObject(ctx, "archive", "o/frame", minio.StatObjectOptions{}); err != nil {
		t.Errorf("stat: %v", err)
	}
	for what, try := range map[string]func() error{
		"put":       func() error { return put(c, "o/forged") },
		"overwrite": func() error { return put(c, "o/frame") },
		"remove":    func() error { return c.RemoveObject(ctx, "archive", "o/frame", minio.RemoveObjectOptions{}) },
		"bucket":    func() error { return c.MakeBucket(ctx, "mine", minio.MakeBucketOptions{}) },
		"policy":    func() error { return c.SetBucketPolicy(ctx, "archive", "") },
		"administer": func() error {
			return S3Admin{server.URL(), must(trusting(filepath.Join(dir, "ca.crt")))(t), reader}.MakeReader(ctx, slog.New(slog.DiscardHandler), S3User{"other", "another secret"})
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: the reader may", what)
		}
	}
	if _, err := root.StatObject(ctx, "archive", "o/frame", minio.StatObjectOptions{}); err != nil {
		t.Errorf("the object is gone: %v", err)
	}
}

// TestReaderOfAServerThatIsAway: the command waits for the server, and says in the end what it waited for.
func TestReaderOfAServerThatIsAway(t *testing.T) {
	admin := S3Admin{"http://" + testenv.Loopback(testenv.FreePort(t)), must(trusting(""))(t), S3User{"root", "secret of root"}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*adminPause)
	defer cancel()
	err := admin.MakeReader(ctx, slog.New(slog.DiscardHandler), S3User{"reader", "secret of reader"})
	if err == nil || !strings.Contains(err.Error(), admin.Endpoint) {
		t.Errorf("got %v", err)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
