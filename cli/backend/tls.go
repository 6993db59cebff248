// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/substorm/substorm/internal/objectstore"
)

// TLSFromDir reads ca.crt and, where they are, tls.crt and tls.key.
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

// tlsFrom makes the client's side of TLS from the keys of a Secret.
func tlsFrom(whence string, data map[string][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(data[objectstore.FileCA]) {
		return nil, fmt.Errorf("%s holds no certificate of an authority in %s", whence, objectstore.FileCA)
	}
	certificate, key := data[objectstore.FileCertificate], data[objectstore.FileKey]
	if len(certificate) == 0 && len(key) == 0 {
		return config, nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %s and %s: %w", whence, objectstore.FileCertificate, objectstore.FileKey, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
