// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Files and folders of the system's authorities, as crypto/x509 looks for them on Linux: of the files the first that is there, and all files of the folders.
var (
	authorityFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"}
	authorityFolders = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// authorities are the system's, read again when their files change: crypto/x509 reads them once.
type authorities struct {
	mu sync.Mutex
	// stamp shows whether files changed.
	stamp string
	pool  *x509.CertPool
}

// read returns the authorities as the files have them now; nil if there are none, which leaves it to crypto/x509.
func (a *authorities) read() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	names, stamp := authorityNames()
	if stamp == a.stamp {
		return a.pool
	}
	a.stamp, a.pool = stamp, nil
	pool, any := x509.NewCertPool(), false
	for _, name := range names {
		if pem, err := os.ReadFile(name); err == nil {
			any = pool.AppendCertsFromPEM(pem) || any
		}
	}
	if any {
		a.pool = pool
	}
	return a.pool
}

// authorityNames returns the files of the system's authorities, and what differs once one of them changed.
func authorityNames() (names []string, stamp string) {
	var stamps strings.Builder
	see := func(name string) bool {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return false
		}
		names = append(names, name)
		fmt.Fprintf(&stamps, "%q %d %d %d\n", name, info.Size(), info.ModTime().UnixNano(), changed(info))
		return true
	}
	files, folders := authorityFiles, authorityFolders
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		files = []string{file}
	}
	if list := os.Getenv("SSL_CERT_DIR"); list != "" {
		folders = strings.Split(list, ":")
	}
	for _, file := range files {
		if see(file) {
			break
		}
	}
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		entries, _ := os.ReadDir(folder)
		for _, entry := range entries {
			see(filepath.Join(folder, entry.Name()))
		}
	}
	return names, stamps.String()
}
