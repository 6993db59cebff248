// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/substorm/substorm/internal/objectstore"
)

// TLSFromDir reads ca.crt, and tls.crt with tls.key: those, or that, which the folder has.
func TLSFromDir(dir string) (*tls.Config, error) {
	data := map[string][]byte{}
	for _, name := range []string{objectstore.FileCA, objectstore.FileCertificate, objectstore.FileKey} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		data[name] = text
	}
	return tlsFrom("folder "+dir, data)
}

// tlsFrom makes the client's side of TLS from the keys of Secrets.
func tlsFrom(whence string, data map[string][]byte) (*tls.Config, error) {
	if len(data[objectstore.FileCA]) == 0 && len(data[objectstore.FileCertificate]) == 0 {
		return nil, fmt.Errorf("%s holds neither %s nor %s", whence, objectstore.FileCA, objectstore.FileCertificate)
	}
	config, err := objectstore.TLSConfig(data[objectstore.FileCA], data[objectstore.FileCertificate], data[objectstore.FileKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", whence, err)
	}
	return config, nil
}
