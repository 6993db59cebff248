// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/minioadmin"
	"github.com/substorm/substorm/internal/objectstore"
)

// MinIOOptions choose how the server runs. The zero value: plain HTTP.
type MinIOOptions struct {
	TLS bool
	// Dir is the drive; "" is a folder of the test's. It must outlive the server.
	Dir string
}

// MinIOServer is a running MinIO server with one drive.
type MinIOServer struct {
	*Process
	port int
	// CA is set with MinIOOptions.TLS.
	CA *CA
	// AccessKeyID and SecretAccessKey are root's.
	AccessKeyID, SecretAccessKey string
	// gateways are the users that GatewayUser made, by the buckets that they may use.
	users    sync.Mutex
	gateways map[string]minioadmin.User
}

// MinIO starts a server and waits until it serves.
func MinIO(t testing.TB, opts MinIOOptions) *MinIOServer {
	t.Helper()
	program := Path(t, "minio")
	var last error
	for range 5 { // another process may take the port between the look and the start
		m := newMinIO(t, program, opts)
		if last = m.start(); last == nil {
			return m
		}
		t.Logf("start minio: %v\n%s", last, m.logTail())
	}
	t.Fatalf("minio does not start: %v", last)
	return nil
}

func newMinIO(t testing.TB, program string, opts MinIOOptions) *MinIOServer {
	t.Helper()
	dir := t.TempDir()
	m := &MinIOServer{port: FreePort(t)}
	m.Process = newProcess(t, "minio", dir, m.command(t, program, dir, opts), minioEnv(dir), m.answers)
	return m
}

// command writes the server's certificates and returns its command line.
func (m *MinIOServer) command(t testing.TB, program, dir string, opts MinIOOptions) []string {
	t.Helper()
	m.AccessKeyID, m.SecretAccessKey, m.gateways = minioRoot, minioSecret, map[string]minioadmin.User{}
	data, certs := cmp.Or(opts.Dir, filepath.Join(dir, "data")), filepath.Join(dir, "certs")
	for _, d := range []string{data, filepath.Join(certs, "CAs")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if opts.TLS {
		m.CA = NewCA(t)
		certificate, key := m.CA.Issue(t, "minio")
		write(t, filepath.Join(certs, "public.crt"), certificate)
		write(t, filepath.Join(certs, "private.key"), key)
		write(t, filepath.Join(certs, "CAs", "ca.crt"), m.CA.PEM)
	}
	return []string{program, "server", "--quiet", "--address", fmt.Sprintf("127.0.0.1:%d", m.port), "--certs-dir", certs, data}
}

const minioRoot, minioSecret = "substorm-test", "substorm-test-secret"

func minioEnv(dir string) []string {
	return []string{
		"MINIO_ROOT_USER=" + minioRoot, "MINIO_ROOT_PASSWORD=" + minioSecret,
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CALLHOME_ENABLE=off",
		"MINIO_CI_CD=1", // serve from the root disk
		"HOME=" + dir,
	}
}

// URL is the endpoint.
func (m *MinIOServer) URL() string {
	scheme := "http"
	if m.CA != nil {
		scheme = "https"
	}
	return scheme + "://" + m.Address()
}

// Address is the endpoint without a scheme.
func (m *MinIOServer) Address() string { return Loopback(m.port) }

// GatewayUser makes a user of the server who has the rights of gateways in a bucket, and no others.
// The buckets of a shared server have one user together: MinIO derives a key from a password for each.
func (m *MinIOServer) GatewayUser(t testing.TB, bucket string) minioadmin.User {
	t.Helper()
	m.users.Lock()
	defer m.users.Unlock()
	name, policy := bucket, minioadmin.Gateway(bucket)
	if m.shared {
		name, policy = sharedBuckets, minioadmin.Gateway(sharedBuckets+"????") // digits of BucketName
		policy.Name = "substorm-gateway"
		policy.Statements[0].Resource = []string{"arn:aws:s3:::" + sharedBuckets + "*"} // at the end MinIO matches no digits with ?
	}
	if user, made := m.gateways[name]; made {
		return user
	}
	client := &http.Client{Timeout: Patience}
	if m.CA != nil {
		client.Transport = &http.Transport{TLSClientConfig: m.CA.ClientTLS()}
	}
	admin := minioadmin.Admin{Endpoint: m.URL(), Client: client, Root: m.Root()}
	user := minioadmin.User{AccessKeyID: "gateway-" + name, SecretAccessKey: "substorm-gateway-secret"}
	if err := admin.MakeUser(t.Context(), slog.New(slog.DiscardHandler), user, policy); err != nil {
		t.Fatal(err)
	}
	m.gateways[name] = user
	return user
}

// Root is the user who may do everything.
func (m *MinIOServer) Root() minioadmin.User {
	return minioadmin.User{AccessKeyID: m.AccessKeyID, SecretAccessKey: m.SecretAccessKey}
}

// Config is what a client of the server needs for a bucket.
func (m *MinIOServer) Config(bucket string) objectstore.Config {
	cfg := objectstore.Config{Endpoint: m.URL(), Bucket: bucket,
		AccessKeyID: m.AccessKeyID, SecretAccessKey: m.SecretAccessKey}
	if m.CA != nil {
		cfg.TLS = m.CA.ClientTLS()
	}
	return cfg
}

// Bucket makes a bucket where it is missing and returns it.
func (m *MinIOServer) Bucket(t testing.TB, name string) objectstore.Store {
	t.Helper()
	store := must(objectstore.Open(m.Config(name)))(t)
	ctx, cancel := deadline(Patience)
	defer cancel()
	if _, err := store.EnsureBucket(ctx); err != nil {
		t.Fatalf("bucket %s: %v", name, err)
	}
	return store
}

func (m *MinIOServer) answers() error {
	store, err := objectstore.Open(m.Config("readiness-probe"))
	if err != nil {
		return err
	}
	ctx, cancel := deadline(2 * time.Second)
	defer cancel()
	_, err = store.EnsureBucket(ctx)
	return err
}
