// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"time"
)

// LostManifestsKey is the key of LostManifests in the bucket of cursors.
const LostManifestsKey = "lost-manifests"

// LostManifests says that the bucket lacks files of manifests which the index named. The objects that they listed are found where
// the whole bucket is compared with the manifests, once that begins when all of it is old enough.
type LostManifests struct {
	// Found is when that was last noticed.
	Found time.Time `json:"found"`
}

func (l *LostManifests) check() error {
	if l.Found.IsZero() {
		return fmt.Errorf("lost manifests without a time: %w", ErrMalformed)
	}
	return nil
}
