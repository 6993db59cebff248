// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kubeapi

import (
	"errors"
	"os"
)

// syncDir makes a rename in a folder outlast a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
