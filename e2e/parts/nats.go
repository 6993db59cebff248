// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// NATSOptions choose how the server runs. The zero value: one server with
// JetStream on files, every write synced, no TLS, no accounts.
type NATSOptions struct {
	// Operator turns on operator mode: accounts SYS and SUBSTORM by JWT.
	Operator bool
	// TLS makes the server show a certificate for 127.0.0.1 and localhost and
	// demand one of the same authority.
	TLS bool
	// AnyClient has it demand none, as the quickstart's: clients show credentials.
	AnyClient bool
	// Domain is the JetStream domain.
	Domain string
	// Unsynced leaves sync_interval at the server's default.
	Unsynced bool
	// Dir is where JetStream keeps its streams; "" is a folder of the test's. It
	// must outlive the server.
	Dir string
	// Config is appended to the configuration file.
	Config string
	// TakesLeaves opens a port for leaf links, with the server's certificate where
	// it has one.
	TakesLeaves bool
	// LeafOf makes the server link to another one, as a leaf.
	LeafOf *LeafLink

	account *account // of a cluster
}

// NATSServer is a running nats-server.
type NATSServer struct {
	*Process
	port     int
	leafPort int
	opts     NATSOptions

	// CA is set with NATSOptions.TLS.
	CA *CA
	// AccountSeed and AccountID are set with NATSOptions.Operator: the identity
	// seed and the public key of the account SUBSTORM.
	AccountSeed, AccountID string
	creds                  string
}

// NATS starts a server and waits until JetStream answers.
func NATS(t testing.TB, opts NATSOptions) *NATSServer {
	t.Helper()
	program := Path(t, "nats-server")
	var last error
	for range 5 { // another process may take the port between the look and the start
		n := newNATS(t, program, opts)
		if last = n.start(); last == nil {
			return n
		}
		t.Logf("start nats-server: %v\n%s", last, n.logTail())
	}
	t.Fatalf("nats-server does not start: %v", last)
	return nil
}

func newNATS(t testing.TB, program string, opts NATSOptions) *NATSServer {
	t.Helper()
	dir := t.TempDir()
	n := &NATSServer{port: FreePort(t), opts: opts}
	config := fmt.Sprintf("listen: 127.0.0.1:%d\nserver_name: nats-%d\nmax_payload: 1MB\n", n.port, n.port)
	config += fmt.Sprintf("jetstream {\n  store_dir: %q\n", cmp.Or(opts.Dir, filepath.Join(dir, "jetstream")))
	if !opts.Unsynced {
		config += "  sync_interval: always\n"
	}
	if opts.Domain != "" {
		config += fmt.Sprintf("  domain: %q\n", opts.Domain)
	}
	config += "}\n"
	certs := ""
	if opts.TLS {
		n.CA = NewCA(t)
		certs = n.CA.Dir(t, "server")
		config += fmt.Sprintf("tls {\n  cert_file: %q\n  key_file: %q\n  ca_file: %q\n  verify: %t\n}\n",
			filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key"), filepath.Join(certs, "ca.crt"), !opts.AnyClient)
	}
	if opts.Operator {
		if opts.account == nil {
			opts.account = newAccount(t)
		}
		config += opts.account.config
		n.AccountSeed, n.AccountID = opts.account.seed, opts.account.id
		n.creds = n.UserCreds(t, jwt.Permissions{})
	}
	config += n.leafnodes(t, certs)
	file := filepath.Join(dir, "nats.conf")
	write(t, file, []byte(config+opts.Config))
	n.Process = newProcess(t, "nats-server", dir, []string{program, "-c", file}, nil, n.answers)
	return n
}

// account is the account SUBSTORM, its seed, and the part of the configuration that
// makes servers know it.
type account struct{ seed, id, config string }

// newAccount makes the operator and its accounts.
func newAccount(t testing.TB) *account {
	t.Helper()
	operator := must(nkeys.CreateOperator())(t)
	system, ours := must(nkeys.CreateAccount())(t), must(nkeys.CreateAccount())(t)
	systemID, accountID := must(system.PublicKey())(t), must(ours.PublicKey())(t)

	op := jwt.NewOperatorClaims(must(operator.PublicKey())(t))
	op.Name, op.SystemAccount = "substorm", systemID
	sys := jwt.NewAccountClaims(systemID)
	sys.Name = "SYS"
	acc := jwt.NewAccountClaims(accountID)
	acc.Name = "SUBSTORM"
	acc.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
		MaxAckPending: jwt.NoLimit, MemoryMaxStreamBytes: jwt.NoLimit, DiskMaxStreamBytes: jwt.NoLimit,
	}
	config := fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload {\n  %s: %s\n  %s: %s\n}\n",
		must(op.Encode(operator))(t), systemID,
		systemID, must(sys.Encode(operator))(t), accountID, must(acc.Encode(operator))(t))
	return &account{seed: string(must(ours.Seed())(t)), id: accountID, config: config}
}

// UserCreds makes a user of the account SUBSTORM (NATSOptions.Operator) and
// returns the path of its credentials file. Connections are the ways in which it
// may come (jwt.ConnectionType…); none means all.
func (n *NATSServer) UserCreds(t testing.TB, permissions jwt.Permissions, connections ...string) string {
	t.Helper()
	signer := must(nkeys.FromSeed([]byte(n.AccountSeed)))(t)
	user := must(nkeys.CreateUser())(t)
	claims := jwt.NewUserClaims(must(user.PublicKey())(t))
	claims.Permissions = permissions
	claims.AllowedConnectionTypes = connections
	token := must(claims.Encode(signer))(t)
	file := filepath.Join(t.TempDir(), "user.creds")
	write(t, file, must(jwt.FormatUserConfig(token, must(user.Seed())(t)))(t))
	return file
}

// URL is where clients connect: nats:// or, with TLS, tls://.
func (n *NATSServer) URL() string {
	scheme := "nats"
	if n.opts.TLS {
		scheme = "tls"
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, n.port)
}

// Options are what a client needs to be let in.
func (n *NATSServer) Options() []nats.Option {
	var opts []nats.Option
	if n.opts.TLS {
		opts = append(opts, nats.Secure(n.CA.ClientTLS()))
	}
	if n.creds != "" {
		opts = append(opts, nats.UserCredentials(n.creds))
	}
	return opts
}

// Connect returns a connection that ends with the test and reconnects forever.
func (n *NATSServer) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append(append(n.Options(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)), opts...)
	nc, err := nats.Connect(n.URL(), opts...)
	if err != nil {
		t.Fatalf("connect to NATS: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns JetStream on a connection of its own.
func (n *NATSServer) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, err := n.jetStream(n.Connect(t))
	if err != nil {
		t.Fatalf("JetStream: %v", err)
	}
	return js
}

func (n *NATSServer) jetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	if n.opts.Domain != "" {
		return jetstream.NewWithDomain(nc, n.opts.Domain)
	}
	return jetstream.New(nc)
}

func (n *NATSServer) answers() error {
	nc, err := nats.Connect(n.URL(), append(n.Options(), nats.NoReconnect())...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := n.jetStream(nc)
	if err != nil {
		return err
	}
	ctx, cancel := deadline(2 * time.Second)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return err
}

// ClientTLS returns what a client of the server needs, or nil without TLS.
func (n *NATSServer) ClientTLS() *tls.Config {
	if n.CA == nil {
		return nil
	}
	return n.CA.ClientTLS()
}

func write(t testing.TB, file string, body []byte) {
	t.Helper()
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
}

// must turns an error into the test's end: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
