// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The keys of Secrets with an S3 user.
const keyS3ID, keyS3Secret = "accessKeyID", "secretAccessKey"

// s3Credentials are of the S3 server's root, which the server is started with.
func s3Credentials(c Config) recipe {
	return s3User(c.Prefix+"-s3", rand.Text()[:20]) // as long as AWS's own
}

// s3Reader is of a user who may only list and read, whom the command s3-users makes when the server runs. Its name stays: if the Secret
// is recreated, the server's user gets the new secret, and the old one is no longer valid.
func s3Reader(c Config) recipe { return s3User(c.Prefix+"-s3-read", c.Prefix+"-read") }

// s3Gateway is of the user of gateways, who may write no manifest and delete no object.
func s3Gateway(c Config) recipe { return s3User(c.Prefix+"-s3-gateway", c.Prefix+"-gateway") }

func s3User(name, user string) recipe {
	const id, secret = keyS3ID, keyS3Secret
	return recipe{
		name: name,
		kind: corev1.SecretTypeOpaque,
		keys: []string{id, secret},
		make: func() (map[string][]byte, error) {
			return map[string][]byte{id: []byte(user), secret: []byte((rand.Text() + rand.Text())[:40])}, nil
		},
		check: func(data map[string][]byte) error {
			if len(data[secret]) < 8 {
				return fmt.Errorf("%s has fewer than 8 characters, which the server refuses: set a longer one", secret)
			}
			return nil
		},
	}
}
