// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// SupersededKey is the key of Superseded in the bucket of cursors.
const SupersededKey = "superseded"

// Superseded names objects that a newer version has replaced and that are not listed yet: the notice of the newer one came
// first. Each is listed as superseded when its own notice comes.
type Superseded struct {
	// IDs of the objects, in the order in which they were noted.
	IDs []string `json:"ids"`
}

func (s *Superseded) check() error {
	for _, id := range s.IDs {
		if id == "" {
			return fmt.Errorf("an object that was superseded has no ID: %w", ErrMalformed)
		}
	}
	return nil
}
