// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
)

// TestFolderRclone: rclone takes a bucket from a folder to an S3 server and back, with its metadata.
func TestFolderRclone(t *testing.T) {
	if _, err := exec.LookPath("rclone"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("rclone is not installed, and CI must run this test: see packages in .ci/run")
		}
		t.Skip("rclone is not installed (apt-get install rclone)")
	}
	minio := testenv.MinIO(t, testenv.MinIOOptions{})
	server := minio.Bucket(t, "archive")
	copied := func(from, to string) {
		t.Helper()
		cmd := exec.Command("rclone", "copy", "--metadata", "--exclude", "/.substorm/**", from, to)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "RCLONE_CONFIG=/dev/null", "RCLONE_CONFIG_S3_TYPE=s3", "RCLONE_CONFIG_S3_PROVIDER=Other",
			"RCLONE_CONFIG_S3_ENDPOINT=" + minio.URL(), "RCLONE_CONFIG_S3_REGION=us-east-1", "RCLONE_CONFIG_S3_FORCE_PATH_STYLE=true",
			"RCLONE_CONFIG_S3_ACCESS_KEY_ID=" + minio.AccessKeyID, "RCLONE_CONFIG_S3_SECRET_ACCESS_KEY=" + minio.SecretAccessKey}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("rclone copy %s %s: %v\n%s", from, to, err, out)
		}
	}
	body := random(t, 5000)
	metadata := map[string]string{"Substorm-Sha256": "0123", "Substorm-Record": `{"name":"nordlys over Tromsø ★.fits","size":3}`, "Substorm-Spaces": "  a  b ", "Substorm-Looks-Like": "=?UTF-8?b?no?="}
	const key = "o/hub/cam/r/2026/11/21/frame 7.fits"
	check := func(where string, store objectstore.Store) {
		t.Helper()
		wantBytes(t, store, key, body)
		info, err := store.Head(t.Context(), key)
		if err != nil || info.ContentType != "image/x-fits" {
			t.Errorf("%s: %+v, %v", where, info, err)
		}
		for name, value := range metadata { // rclone adds to them what it knows of files
			if info.Metadata[name] != value {
				t.Errorf("%s: %s is %q, want %q", where, name, info.Metadata[name], value)
			}
		}
	}
	first, second := t.TempDir(), t.TempDir()
	opts := objectstore.PutOptions{ContentType: "image/x-fits", Metadata: metadata}
	if err := put(t.Context(), inFolder(t, first), key, body, opts); err != nil {
		t.Fatal(err)
	}
	copied(filepath.Join(first, "archive"), "s3:archive")
	check("S3", server)
	copied("s3:archive", filepath.Join(second, "archive"))
	check("the second folder", inFolder(t, second))
}
