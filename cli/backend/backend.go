// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/usage"
)

// connectTimeout is how long NATS may take to let us in.
const connectTimeout = 15 * time.Second

// Backend is a Site's object store and JetStream. Each is connected to when it
// is asked for.
type Backend struct {
	// Code of the Site.
	Code string

	store objectstore.Config
	nats  stream.Config
	// natsAPI begins the subjects of JetStream's API where it is not $JS.API.
	natsAPI string
	// natsProblem is why JetStream cannot be asked.
	natsProblem error
	// forward is set where an endpoint may lie inside a cluster.
	cluster    *kube.Cluster
	serverName string
	ends       []func()
}

// Open finds a Site's backends.
func Open(ctx context.Context, o Options) (*Backend, error) {
	if o.Code != "" {
		return fromFlags(o)
	}
	return fromCluster(ctx, o)
}

func fromFlags(o Options) (*Backend, error) {
	if o.Site != "" {
		return nil, usage.Errorf("--code names the Site's code and asks no cluster, --site names a Site in the cluster: give one of them")
	}
	b := &Backend{Code: o.Code, serverName: o.TLSServerName}
	return b, b.override(o)
}

// override lets flags take the place of what the Site says.
func (b *Backend) override(o Options) error {
	set := func(p *string, value string) {
		if value != "" {
			*p = value
		}
	}
	set(&b.store.Endpoint, o.S3Endpoint)
	set(&b.store.Bucket, o.S3Bucket)
	set(&b.store.Region, o.S3Region)
	set(&b.store.CredentialsDir, o.S3CredentialsDir)
	set(&b.nats.CredentialsFile, o.NATSCredentials)
	set(&b.nats.InboxPrefix, o.NATSInboxPrefix)
	if o.NATSCredentials != "" {
		b.nats.Credentials, b.natsAPI, b.natsProblem = nil, "", nil
	}
	if len(o.NATSServers) > 0 {
		b.nats.Servers = o.NATSServers
	}
	for _, t := range []struct {
		dir    string
		config **tls.Config
	}{{o.S3TLSDir, &b.store.TLS}, {o.NATSTLSDir, &b.nats.TLS}} {
		if t.dir == "" {
			continue
		}
		config, err := TLSFromDir(t.dir)
		if err != nil {
			return err
		}
		*t.config = config
	}
	return nil
}

// Bucket is the name of the Site's bucket.
func (b *Backend) Bucket() string { return b.store.Bucket }

// Close ends what was opened.
func (b *Backend) Close() {
	for _, end := range b.ends {
		end()
	}
	b.ends = nil
}

// Store opens the bucket.
func (b *Backend) Store(ctx context.Context) (objectstore.Store, error) {
	cfg := b.store
	if cfg.Endpoint == "" || cfg.Bucket == "" {
		return nil, usage.Errorf("where is the archive? give --s3-endpoint and --s3-bucket (or leave --code out and name a Site of the cluster with --site)")
	}
	var err error
	cfg.Endpoint, cfg.TLS, err = b.reach(ctx, cfg.Endpoint, cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	store, err := objectstore.Open(cfg)
	if err != nil {
		return nil, err
	}
	if err := store.CheckBucket(ctx); err != nil {
		return nil, fmt.Errorf("bucket %s at %s: %w", cfg.Bucket, b.store.Endpoint, err)
	}
	return store, nil
}

// KnowsJetStream says whether anything tells where the Site's JetStream is.
func (b *Backend) KnowsJetStream() bool { return len(b.nats.Servers) > 0 }

// JetStream connects to the Site's JetStream.
func (b *Backend) JetStream(ctx context.Context) (jetstream.JetStream, error) {
	if b.natsProblem != nil {
		return nil, b.natsProblem
	}
	cfg := b.nats
	if len(cfg.Servers) == 0 {
		return nil, usage.Errorf("where is NATS? give --nats-servers (or leave --code out and name a Site of the cluster with --site)")
	}
	cfg.Name = "substorm cli"
	server, config, err := b.reach(ctx, cfg.Servers[0], cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("NATS: %w", err)
	}
	cfg.TLS = config
	if server != cfg.Servers[0] { // the others lie in the same place
		cfg.Servers = []string{server}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	nc, err := stream.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, nc.Close)
	if err := stream.WaitConnected(ctx, nc); err != nil {
		return nil, fmt.Errorf("NATS at %s: %w", b.nats.Servers[0], err)
	}
	if b.natsAPI != "" {
		return jetstream.NewWithAPIPrefix(nc, b.natsAPI)
	}
	return jetstream.New(nc)
}

// reach returns the URL and TLS by which a server can be connected to from
// here. The name in its certificate stays what it was.
func (b *Backend) reach(ctx context.Context, rawURL string, config *tls.Config) (string, *tls.Config, error) {
	if strings.HasPrefix(rawURL, "file:///") || strings.HasPrefix(rawURL, stream.SocketScheme) { // of this computer
		return rawURL, config, nil
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return "", nil, fmt.Errorf("%q is not a URL", rawURL)
	}
	secure := u.Scheme == "https" || u.Scheme == "tls"
	name := b.serverName
	if b.cluster != nil {
		address := net.JoinHostPort(u.Hostname(), portOf(u))
		local, end, err := b.cluster.Reachable(ctx, address)
		if err != nil {
			return "", nil, err
		}
		b.ends = append(b.ends, end)
		if local != address {
			if name == "" {
				name = u.Hostname()
			}
			u.Host = local
		}
	}
	if !secure || name == "" {
		return u.String(), config, nil
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	config.ServerName = name
	return u.String(), config, nil
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme] + map[string]string{"nats": "4222", "tls": "4222"}[u.Scheme]
}

// WithStore opens a Site's bucket for f, and closes what is open of the Site after it.
func WithStore(ctx context.Context, o Options, f func(*Backend, objectstore.Store) error) error {
	b, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	store, err := b.Store(ctx)
	if err != nil {
		return err
	}
	return f(b, store)
}

// WithJetStream connects to a Site's JetStream for f, and closes what is open of the
// Site after it.
func WithJetStream(ctx context.Context, o Options, f func(*Backend, jetstream.JetStream) error) error {
	b, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	js, err := b.JetStream(ctx)
	if err != nil {
		return err
	}
	return f(b, js)
}

// With is WithStore and WithJetStream together.
func With(ctx context.Context, o Options, f func(*Backend, objectstore.Store, jetstream.JetStream) error) error {
	return WithStore(ctx, o, func(b *Backend, store objectstore.Store) error {
		js, err := b.JetStream(ctx)
		if err != nil {
			return err
		}
		return f(b, store, js)
	})
}
