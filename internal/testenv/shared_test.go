// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
)

// Gateways may use each bucket of a shared server, and have the rights of gateways there and no others.
func TestSharedMinIO(t *testing.T) {
	server := testenv.SharedMinIO(t, testenv.MinIOOptions{})
	for range 3 {
		bucket := testenv.BucketName()
		server.Bucket(t, bucket)
		user := server.GatewayUser(t, bucket)
		cfg := server.Config(bucket)
		cfg.AccessKeyID, cfg.SecretAccessKey = user.AccessKeyID, user.SecretAccessKey
		store, err := objectstore.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		put := func(key string) error {
			return store.Put(t.Context(), key, bytes.NewReader([]byte("x")), 1, objectstore.PutOptions{})
		}
		if err := errors.Join(store.CheckBucket(t.Context()), put("o/hub/camera/r/x")); err != nil {
			t.Errorf("%s: %v", bucket, err)
		}
		for _, key := range []string{"manifest/hub/x", "manifest/o/x"} {
			if err := put(key); err == nil {
				t.Errorf("%s: a gateway may write %s", bucket, key)
			}
		}
	}
}
