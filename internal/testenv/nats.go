// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/wire"
)

// NATSOptions choose how the server runs. The zero value: one server with
// JetStream on files, every write synced, no TLS, no accounts.
type NATSOptions struct {
	// Operator turns on operator mode: accounts SYS, SUBSTORM, CONSUMERS, COMMANDS and LEAVES by JWT,
	// as the quickstart makes them.
	Operator bool
	// Also makes the claims of one more account, and may change those of SUBSTORM.
	Also func(substorm *jwt.AccountClaims) *jwt.AccountClaims
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

	accounts *accounts // of a cluster
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
	// seed and the public key of the account SUBSTORM. ConsumersSeed and ConsumersID
	// are those of the account CONSUMERS, CommandsSeed and CommandsID of COMMANDS,
	// LeavesSeed and LeavesID of LEAVES.
	AccountSeed, AccountID     string
	ConsumersSeed, ConsumersID string
	CommandsSeed, CommandsID   string
	LeavesSeed, LeavesID       string
	creds                      string
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
		if opts.accounts == nil {
			opts.accounts = newAccounts(t, opts.Also)
		}
		config += opts.accounts.config
		n.AccountSeed, n.AccountID = opts.accounts.seed, opts.accounts.id
		n.ConsumersSeed, n.ConsumersID = opts.accounts.consumersSeed, opts.accounts.consumersID
		n.CommandsSeed, n.CommandsID = opts.accounts.commandsSeed, opts.accounts.commandsID
		n.LeavesSeed, n.LeavesID = opts.accounts.leavesSeed, opts.accounts.leavesID
		n.creds = n.UserCreds(t, jwt.Permissions{})
	}
	config += n.leafnodes(t, certs)
	file := filepath.Join(dir, "nats.conf")
	write(t, file, []byte(config+opts.Config))
	n.Process = newProcess(t, "nats-server", dir, []string{program, "-c", file}, nil, n.answers)
	return n
}

// accounts are the accounts SUBSTORM, CONSUMERS, COMMANDS and LEAVES, their seeds, and the
// part of the configuration that makes servers know them.
type accounts struct {
	seed, id, consumersSeed, consumersID, commandsSeed, commandsID, leavesSeed, leavesID, config string
}

// newAccounts makes the operator and its accounts.
func newAccounts(t testing.TB, also func(*jwt.AccountClaims) *jwt.AccountClaims) *accounts {
	t.Helper()
	operator := must(nkeys.CreateOperator())(t)
	system, ours := must(nkeys.CreateAccount())(t), must(nkeys.CreateAccount())(t)
	consumers, commands := must(nkeys.CreateAccount())(t), must(nkeys.CreateAccount())(t)
	a := &accounts{seed: string(must(ours.Seed())(t)), id: must(ours.PublicKey())(t),
		consumersSeed: string(must(consumers.Seed())(t)), consumersID: must(consumers.PublicKey())(t),
		commandsSeed: string(must(commands.Seed())(t)), commandsID: must(commands.PublicKey())(t)}

	op := jwt.NewOperatorClaims(must(operator.PublicKey())(t))
	sys, acc, con := jwt.NewAccountClaims(must(system.PublicKey())(t)), jwt.NewAccountClaims(a.id), jwt.NewAccountClaims(a.consumersID)
	com := jwt.NewAccountClaims(a.commandsID)
	op.Name, op.SystemAccount = "substorm", sys.Subject
	sys.Name, acc.Name, con.Name, com.Name = natsaccounts.System, natsaccounts.Substorm, natsaccounts.Consumers, natsaccounts.Commands
	natsaccounts.EnableJetStream(acc)
	natsaccounts.ExportServices(acc)
	if err := errors.Join(natsaccounts.ImportServices(con, natsaccounts.ConsumerServices, a.id, ours),
		natsaccounts.ImportServices(com, natsaccounts.CommandServices, a.id, ours)); err != nil {
		t.Fatal(err)
	}
	all := []*jwt.AccountClaims{sys, acc, con, com, a.addLeaves(t, acc)}
	if also != nil {
		all = append(all, also(acc))
	}
	var tokens []string
	for _, claims := range all {
		tokens = append(tokens, must(claims.Encode(operator))(t))
	}
	a.config = string(must(natsaccounts.Config(must(op.Encode(operator))(t), tokens...))(t))
	return a
}

// addLeaves makes the account LEAVES, from which SUBSTORM imports.
func (a *accounts) addLeaves(t testing.TB, substorm *jwt.AccountClaims) *jwt.AccountClaims {
	t.Helper()
	leaves := must(nkeys.CreateAccount())(t)
	a.leavesSeed, a.leavesID = string(must(leaves.Seed())(t)), must(leaves.PublicKey())(t)
	claims := jwt.NewAccountClaims(a.leavesID)
	claims.Name = natsaccounts.Leaves
	natsaccounts.EnableJetStream(claims)
	natsaccounts.ExportCopies(claims)
	if err := natsaccounts.ImportCopies(substorm, a.leavesID, leaves); err != nil {
		t.Fatal(err)
	}
	return claims
}

// UserCreds makes a user of the account SUBSTORM (NATSOptions.Operator) and
// returns the path of its credentials file. Connections are the ways in which it
// may come (jwt.ConnectionType…); none means all.
func (n *NATSServer) UserCreds(t testing.TB, permissions jwt.Permissions, connections ...string) string {
	t.Helper()
	return userCreds(t, n.AccountSeed, permissions, connections...)
}

// ConsumerCreds is as UserCreds, for a user of the account CONSUMERS.
func (n *NATSServer) ConsumerCreds(t testing.TB, permissions jwt.Permissions) string {
	t.Helper()
	return userCreds(t, n.ConsumersSeed, permissions)
}

// CommandCreds is as UserCreds, for a user of the account COMMANDS.
func (n *NATSServer) CommandCreds(t testing.TB, permissions jwt.Permissions) string {
	t.Helper()
	return userCreds(t, n.CommandsSeed, permissions)
}

// LeafCreds is as UserCreds, for a user of the account LEAVES.
func (n *NATSServer) LeafCreds(t testing.TB, permissions jwt.Permissions, connections ...string) string {
	t.Helper()
	return userCreds(t, n.LeavesSeed, permissions, connections...)
}

// ConnectLeaves returns a connection to the account LEAVES, where it may do everything.
func (n *NATSServer) ConnectLeaves(t testing.TB) *nats.Conn {
	t.Helper()
	return n.Connect(t, nats.UserCredentials(n.LeafCreds(t, jwt.Permissions{})))
}

func userCreds(t testing.TB, account string, permissions jwt.Permissions, connections ...string) string {
	t.Helper()
	signer := must(nkeys.FromSeed([]byte(account)))(t)
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
	return scheme + "://" + n.Address()
}

// Address is where clients connect, without a scheme.
func (n *NATSServer) Address() string { return Loopback(n.port) }

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
		return jetstream.NewWithAPIPrefix(nc, wire.JetStreamAPI(n.opts.Domain)) // jetstreamext asks a wrong subject for a domain
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
