// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/substorm/substorm/internal/minioadmin"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestS3Users: the user of feed servers lists and reads every bucket, and the user of gateways stores what gateways store. Both are
// refused everything else: no gateway writes a manifest, a change, a day of the ledger or of gaps, or deletes an object.
func TestS3Users(t *testing.T) {
	server := testenv.MinIO(t, testenv.MinIOOptions{TLS: true})
	client := func(u minioadmin.User) *minio.Client {
		c, err := minio.New(strings.TrimPrefix(server.URL(), "https://"), &minio.Options{Secure: true,
			Creds: credentials.NewStaticV4(u.AccessKeyID, u.SecretAccessKey, ""), Transport: &http.Transport{TLSClientConfig: server.CA.ClientTLS()}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx, root := t.Context(), client(server.Root())
	at, digest := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), wire.Digest{1}
	const id = "0123456789abcdef0123456789abcdef"
	// Keys under which gateways store objects, and whether gateways may delete them.
	stored := map[string]bool{
		wire.RawKey("hub", "camera", at, digest): false, wire.NamedKey("hub", "camera", "frame.jpg", 1): false, wire.NamedKey("hub", "camera", "frame.jpg", 2): false,
		wire.PackKey("hub", at, "north-0", "one", 1): false, wire.StagingKey("hub", "camera", "1"): true, wire.UploadInfoKey("hub", "camera", id): true,
		wire.QuarantineKey("hub", "north-0", at, digest): true,
	}
	// Keys that gateways must not write: most are the archivist's or the operator's.
	others := []string{
		wire.ManifestPartKey("hub", "camera", "2026-11-21", 1), wire.ManifestVersionKey("hub", "camera", "2026-11-21", 1), "changes/hub/camera/1.json",
		"ledger/hub/2026-11-21.json", "gaps/hub/2026-11-21.json", "deletions/hub/1.json", "descriptions/hub/camera.json", "guests/hub/arctic_camera/1.json", wire.AdoptionKey("hub", "1"), wire.SiteMarkerKey("hub"), "mine.txt",
		"manifest/hub/o/2026-11-21/p-1.jsonl.zst", // of an instrument whose name is a prefix that gateways may write
	}
	const elsewhere = "another"
	for _, bucket := range []string{"archive", elsewhere} {
		if err := root.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(c *minio.Client, bucket, key string) error {
		_, err := c.PutObject(ctx, bucket, key, strings.NewReader("frame"), 5, minio.PutObjectOptions{})
		return err
	}
	remove := func(c *minio.Client, key string) error {
		return c.RemoveObject(ctx, "archive", key, minio.RemoveObjectOptions{})
	}
	for _, key := range others {
		if err := put(root, "archive", key); err != nil {
			t.Fatal(err)
		}
	}
	users := map[string]minioadmin.User{"reader": {AccessKeyID: "reader", SecretAccessKey: "a secret of the reader"}, "gateway": {AccessKeyID: "gateway", SecretAccessKey: "a secret of the gateway"}}
	ca := server.CA.Dir(t, "client")
	for range 2 { // again is harmless
		cmd := s3UsersCommand()
		cmd.SetArgs([]string{"--s3-endpoint", server.URL(), "--s3-tls-dir", ca, "--s3-bucket", "archive", "--root-dir", testenv.CredentialsDir(t, server.Root()),
			"--reader-dir", testenv.CredentialsDir(t, users["reader"]), "--gateway-dir", testenv.CredentialsDir(t, users["gateway"])})
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Fatal(err)
		}
	}

	gateway, reader := client(users["gateway"]), client(users["reader"])
	refused := func(who, what string, err error) {
		t.Helper()
		if minio.ToErrorResponse(err).Code != minio.AccessDenied {
			t.Errorf("%s: the %s is not refused: %v", what, who, err)
		}
	}
	for key, deletes := range stored {
		if err := put(gateway, "archive", key); err != nil {
			t.Errorf("the gateway stores %s: %v", key, err)
		}
		if _, err := gateway.StatObject(ctx, "archive", key, minio.StatObjectOptions{}); err != nil {
			t.Errorf("the gateway reads %s: %v", key, err)
		}
		if err := remove(gateway, key); !deletes {
			refused("gateway", "delete "+key, err)
		} else if err != nil {
			t.Errorf("the gateway deletes %s: %v", key, err)
		}
		refused("gateway", "store in another bucket", put(gateway, elsewhere, key))
		refused("reader", "store "+key, put(reader, "archive", key))
	}
	for _, key := range others {
		refused("gateway", "write "+key, put(gateway, "archive", key))
		refused("gateway", "delete "+key, remove(gateway, key))
		refused("reader", "overwrite "+key, put(reader, "archive", key))
		refused("reader", "delete "+key, remove(reader, key))
	}
	var want []string
	for key, deletes := range stored {
		if !deletes {
			want = append(want, key)
		}
	}
	want = append(want, others...)
	for name, c := range map[string]*minio.Client{"gateway": gateway, "reader": reader} {
		if is, err := c.BucketExists(ctx, "archive"); err != nil || !is {
			t.Errorf("the %s does not see the bucket: %v, %v", name, is, err)
		}
		var listed []string
		for o := range c.ListObjects(ctx, "archive", minio.ListObjectsOptions{Recursive: true}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			listed = append(listed, o.Key)
		}
		slices.Sort(want)
		if !slices.Equal(listed, want) {
			t.Errorf("the %s lists %v, want %v", name, listed, want)
		}
		refused(name, "make a bucket", c.MakeBucket(ctx, "mine", minio.MakeBucketOptions{}))
		refused(name, "set the bucket's policy", c.SetBucketPolicy(ctx, "archive", ""))
		admin := minioadmin.Admin{Endpoint: server.URL(), Client: must(trusting(ca))(t), Root: users[name]}
		if err := admin.MakeUser(ctx, slog.New(slog.DiscardHandler), minioadmin.User{AccessKeyID: "other", SecretAccessKey: "another secret"}, minioadmin.Read()); err == nil {
			t.Errorf("the %s makes users", name)
		}
	}
	if _, err := gateway.StatObject(ctx, "archive", others[0], minio.StatObjectOptions{}); err != nil {
		t.Errorf("the gateway reads %s: %v", others[0], err)
	}
	if _, err := reader.StatObject(ctx, "archive", others[0], minio.StatObjectOptions{}); err != nil {
		t.Errorf("the reader reads %s: %v", others[0], err)
	}
}

// TestUsersOfAServerThatIsAway: the command waits for the server, and says in the end what it waited for.
func TestUsersOfAServerThatIsAway(t *testing.T) {
	admin := minioadmin.Admin{Endpoint: "http://" + testenv.Loopback(testenv.FreePort(t)), Client: must(trusting(""))(t), Root: minioadmin.User{AccessKeyID: "root", SecretAccessKey: "secret of root"}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := admin.MakeUser(ctx, slog.New(slog.DiscardHandler), minioadmin.User{AccessKeyID: "reader", SecretAccessKey: "secret of reader"}, minioadmin.Read())
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
