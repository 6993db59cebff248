// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/testenv"
)

// TestCredentialsAreRenewed: a connection whose credentials expire continues with those that are in the file by then, even if they come
// only after servers have refused it many times.
func TestCredentialsAreRenewed(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true, Unsynced: true})
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	writeCredentials(t, server, user, file, 4*time.Second)
	refusals := &refusals{}
	nc, err := Connect(t.Context(), Config{Servers: []string{server.URL()}, CredentialsFile: file, Logger: slog.New(slog.NewTextHandler(refusals, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := WaitConnected(ctx, nc); err != nil {
		t.Fatal(err)
	}
	changes := nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	await := func(want nats.Status) {
		t.Helper()
		for {
			select {
			case s := <-changes:
				if s == nats.CLOSED && want != nats.CLOSED {
					t.Fatalf("the connection was given up: %v", nc.LastError())
				}
				if s == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the connection does not become %s: %v", want, nc.LastError())
			}
		}
	}

	// Renewed in time: the server ends the connection when the token of its CONNECT expires, and the next has the new one.
	writeCredentials(t, server, user, file, 8*time.Second)
	await(nats.RECONNECTING)
	await(nats.CONNECTED)
	makeStream(t, nc, nil)

	// Renewed late: the server has refused the expired ones more often than a client of nats.go takes by default.
	await(nats.RECONNECTING)
	refusals.Store(0)
	testenv.Await(t, "the connection goes on trying", func() bool { return refusals.Load() >= 5 })
	writeCredentials(t, server, user, file, time.Hour)
	await(nats.CONNECTED)
	if err := nc.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
}

// refusals counts what a connection logs of servers that do not take its credentials.
type refusals struct{ atomic.Int64 }

func (r *refusals) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("level=ERROR")) {
		r.Add(1)
	}
	return len(line), nil
}

// writeCredentials writes credentials of a user that expire, as the kubelet does: by a rename.
func writeCredentials(t *testing.T, server *testenv.NATSServer, user nkeys.KeyPair, file string, lifetime time.Duration) {
	t.Helper()
	signer, err := nkeys.FromSeed([]byte(server.AccountSeed))
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(public)
	claims.Expires = time.Now().Add(lifetime).Unix()
	token, err := claims.Encode(signer)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", creds, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
