// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Names of the files in a credentials directory and in a TLS directory; a
// Secret that is mounted has the same keys.
const (
	FileAccessKeyID     = "accessKeyID"
	FileSecretAccessKey = "secretAccessKey"
	FileCA              = "ca.crt"
	FileCertificate     = "tls.crt"
	FileKey             = "tls.key"
)

// tries is how often a call is tried; the pauses between are at most 0.2 and
// 0.4 seconds.
const tries = 3

// Config says which bucket, and how to get at it.
type Config struct {
	// Endpoint is the server's URL: http(s)://host[:port]. On Linux it may be a folder of this computer, which needs nothing of what follows
	// but Bucket: file:///folder (FolderEndpoint).
	Endpoint string
	Bucket   string
	// Region defaults to us-east-1.
	Region string

	// CredentialsDir holds the files accessKeyID and secretAccessKey. They are
	// read again every ten seconds, so that a changed Secret takes effect.
	// Without it, AccessKeyID and SecretAccessKey are used.
	CredentialsDir               string
	AccessKeyID, SecretAccessKey string

	// TLSDir holds ca.crt, or where the server asks for ours tls.crt and tls.key,
	// or all three; the latter two are read at each handshake. Without it, TLS is
	// used; without ca.crt, the system's authorities.
	TLSDir string
	TLS    *tls.Config

	// StallTimeout is how long the server may neither take bytes nor answer;
	// default 30 seconds. An answer that comes slower than 256 bytes a second
	// may be waited for ten times as long.
	StallTimeout time.Duration
}

// Open returns the bucket. It connects at the first call, not before.
func Open(cfg Config) (Store, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err == nil && u.Scheme == fileScheme {
		return openFolder(u, cfg)
	}
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("object store endpoint %q must be a URL like https://minio.example:9000", cfg.Endpoint)
	}
	if cfg.Bucket == "" {
		return nil, errors.New("object store: no bucket is named")
	}
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	secrets := credentials.NewStaticV4(cfg.AccessKeyID, cfg.SecretAccessKey, "")
	if cfg.CredentialsDir != "" {
		dir := &credentialsDir{path: cfg.CredentialsDir}
		if _, err := dir.Retrieve(); err != nil {
			return nil, err
		}
		secrets = credentials.New(dir)
	}
	if cfg.TLSDir != "" {
		if cfg.TLS, err = tlsFromDir(cfg.TLSDir); err != nil {
			return nil, err
		}
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	limitTransport(transport, cfg)
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:        secrets,
		Secure:       u.Scheme == "https",
		Region:       cfg.Region,
		Transport:    answers{transport},
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   tries,
	})
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", cfg.Endpoint, err)
	}
	core.SetAppInfo("substorm", "v1alpha1")
	return &bucket{core: core, name: cfg.Bucket, region: cfg.Region}, nil
}

// IsFolder says whether the bucket is in a folder.
func (c Config) IsFolder() bool {
	u, err := url.Parse(c.Endpoint)
	return err == nil && u.Scheme == fileScheme
}

// FolderEndpoint is the Endpoint of a folder, by its absolute path.
func FolderEndpoint(path string) string { return (&url.URL{Scheme: fileScheme, Path: path}).String() }

const fileScheme = "file"

func limitTransport(t *http.Transport, cfg Config) {
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	stall := cfg.StallTimeout
	if stall <= 0 {
		stall = 30 * time.Second
	}
	t.ResponseHeaderTimeout = stall
	t.MaxIdleConnsPerHost = 64
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newStallConn(conn, stall), nil
	}
}

// credentialsDir reads the access key from files, which may change.
type credentialsDir struct {
	path string
	read time.Time
}

const credentialsAge = 10 * time.Second

// Retrieve implements credentials.Provider.
func (d *credentialsDir) Retrieve() (credentials.Value, error) {
	id, err := readSecret(d.path, FileAccessKeyID)
	if err != nil {
		return credentials.Value{}, err
	}
	secret, err := readSecret(d.path, FileSecretAccessKey)
	if err != nil {
		return credentials.Value{}, err
	}
	d.read = time.Now()
	return credentials.Value{AccessKeyID: id, SecretAccessKey: secret, SignerType: credentials.SignatureV4}, nil
}

// RetrieveWithCredContext implements credentials.Provider.
func (d *credentialsDir) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return d.Retrieve()
}

// IsExpired implements credentials.Provider.
func (d *credentialsDir) IsExpired() bool { return time.Since(d.read) > credentialsAge }

func readSecret(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("credentials of the object store: %w", err)
	}
	value := strings.TrimSpace(string(b))
	if value == "" {
		return "", fmt.Errorf("credentials of the object store: %s is empty", filepath.Join(dir, name))
	}
	return value, nil
}

// TLSConfig makes a client's TLS settings out of PEM: ca may be empty (the
// system's authorities), certificate and key come together or not at all.
func TLSConfig(ca, certificate, key []byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", FileCA)
		}
	}
	if len(certificate) > 0 || len(key) > 0 {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", FileCertificate, FileKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func tlsFromDir(dir string) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, FileCA))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("TLS of the object store: %w", err)
	}
	config, err := TLSConfig(ca, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("TLS of the object store, %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, FileCertificate)); err == nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, FileCertificate), filepath.Join(dir, FileKey))
			return &pair, err
		}
	}
	return config, nil
}
