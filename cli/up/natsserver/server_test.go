// SPDX-License-Identifier: Apache-2.0

package natsserver_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/cli/up/natsserver"
	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/stream"
)

// accounts are those of a server, and the credentials of a user who may do everything in SUBSTORM.
func accounts(t *testing.T) (config, creds []byte) {
	t.Helper()
	pair := func(k nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		id, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return k, id
	}
	operator, operatorID := pair(nkeys.CreateOperator())
	_, systemID := pair(nkeys.CreateAccount())
	account, accountID := pair(nkeys.CreateAccount())
	user, userID := pair(nkeys.CreateUser())
	op, sys, acc, who := jwt.NewOperatorClaims(operatorID), jwt.NewAccountClaims(systemID), jwt.NewAccountClaims(accountID), jwt.NewUserClaims(userID)
	op.SystemAccount, sys.Name, acc.Name = systemID, natsaccounts.System, natsaccounts.Substorm
	natsaccounts.EnableJetStream(acc)
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		t.Helper()
		token, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	config, err := natsaccounts.Config(encode(op, operator), encode(sys, operator), encode(acc, operator))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err = jwt.FormatUserConfig(encode(who, account), seed)
	if err != nil {
		t.Fatal(err)
	}
	return config, creds
}

// TestServer: what JetStream acknowledged is there after a restart, programs reach the server by its URL alone, and a client without
// credentials is refused.
func TestServer(t *testing.T) {
	dir := t.TempDir()
	config, creds := accounts(t)
	start := func() *natsserver.Server {
		t.Helper()
		s, err := natsserver.Start(t.Context(), natsserver.Config{Dir: dir, Domain: "hub", Accounts: config, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		stream.Embed(s)
		return s
	}
	connect := func() (*nats.Conn, jetstream.JetStream) {
		t.Helper()
		nc, err := stream.Connect(t.Context(), stream.Config{Servers: []string{stream.EmbeddedURL}, Credentials: creds})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return nc, js
	}
	s := start()
	defer stream.Embed(nil)
	nc, js := connect()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OBS_hub", Subjects: []string{"obs.hub.>"}}); err != nil {
		t.Fatal(err)
	}
	if ack, err := js.Publish(t.Context(), "obs.hub.camera", []byte("frame")); err != nil || ack.Domain != "hub" {
		t.Fatalf("publish: %+v, %v", ack, err)
	}
	conn, err := s.InProcessConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := nats.Connect("", nats.InProcessServer(s)); err == nil {
		t.Error("who shows no credentials is let in")
	}
	s.Stop()

	s = start()
	defer s.Stop()
	nc.Close()
	_, js = connect()
	str, err := js.Stream(t.Context(), "OBS_hub")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := str.GetLastMsgForSubject(t.Context(), "obs.hub.camera"); err != nil || string(msg.Data) != "frame" {
		t.Errorf("after the restart: %+v, %v", msg, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "accounts.conf")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with keys: %v, %v", info, err)
	}
}

// TestBadStart: what keeps it from starting is said.
func TestBadStart(t *testing.T) {
	config, _ := accounts(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  natsserver.Config
		says string
	}{
		"a file for a folder": {natsserver.Config{Dir: file, Domain: "hub", Accounts: config}, "not a directory"},
		"no configuration":    {natsserver.Config{Dir: t.TempDir(), Domain: "hub", Accounts: []byte("operator: [")}, "Parse error"},
		"no address":          {natsserver.Config{Dir: t.TempDir(), Domain: "hub", Accounts: config, Listen: "here"}, `"here"`},
	} {
		c.cfg.Log = slog.New(slog.DiscardHandler)
		if s, err := natsserver.Start(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				s.Stop()
			}
		}
	}
	// Without an embedded server its URL leads nowhere.
	if _, err := stream.Connect(t.Context(), stream.Config{Servers: []string{stream.EmbeddedURL}}); err == nil || !strings.Contains(err.Error(), "substorm up") {
		t.Errorf("connect without a server: %v", err)
	}
}
