// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// s3Credentials are the S3 server's only user: its root. A user of lesser rights can only be made through the server's
// own administration interface, which is no part of S3.
func s3Credentials(c Config) recipe {
	const id, secret = "accessKeyID", "secretAccessKey"
	return recipe{
		name: c.Prefix + "-s3",
		kind: corev1.SecretTypeOpaque,
		keys: []string{id, secret},
		make: func() (map[string][]byte, error) {
			// The lengths of AWS's own: 20 and 40 characters, here of 5 random bits each.
			return map[string][]byte{
				id:     []byte(rand.Text()[:20]),
				secret: []byte((rand.Text() + rand.Text())[:40]),
			}, nil
		},
		check: func(data map[string][]byte) error {
			if len(data[secret]) < 8 {
				return fmt.Errorf("%s has fewer than 8 characters, which the server refuses: set a longer one", secret)
			}
			return nil
		},
	}
}
