// SPDX-License-Identifier: Apache-2.0

package https

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS is how to connect with the authorities of a file in place of the public ones, and with a certificate of our own and its key.
// Empty names: there are none. Errors name the file.
func TLS(ca, certificate, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", ca)
		}
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s are not a certificate and its key: %w", certificate, key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
