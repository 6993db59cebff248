// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"os"
	"path/filepath"
)

// writeFile writes a file of mode 0600 and syncs it.
func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceFile gives a file new content at once: after a crash it has the old or the new.
func replaceFile(path string, content []byte) error {
	if err := writeFile(path+".new", content); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
