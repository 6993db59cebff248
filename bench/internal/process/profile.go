// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// Profiles names a folder for Go's profiles of what is measured; empty: none are requested.
const Profiles = "SUBSTORM_BENCH_PROFILES"

// KeepProfile keeps a profile that a program serves at a URL in the folder that was asked for.
func KeepProfile(url, name string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	file, err := os.Create(filepath.Join(os.Getenv(Profiles), name+".pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}
