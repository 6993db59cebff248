// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"io"

	"github.com/substorm/substorm/internal/secret"
)

// Secrets are short: of larger files, and behind the first secretHead bytes, none is looked for.
const (
	secretSize = 64 << 10
	secretHead = 4 << 10
)

// holdsSecret reports whether a file looks by its content as if it opened something. One that cannot be read is found when it is sent.
func holdsSecret(file item) bool {
	if file.size > secretSize {
		return false
	}
	f, err := file.open()
	if err != nil {
		return false
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, secretHead))
	return secret.MediaTypeOf(head) != ""
}
