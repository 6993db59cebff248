// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// TestRevokedUsersAreOut: their connections end, they get no others, also at a server that starts later, and other users
// stay.
func TestRevokedUsersAreOut(t *testing.T) {
	v := complete(t)
	url := startNATS(t, v)
	account := v.data(t, "substorm-nats-account")
	id, seed := string(account[keyAccountID]), string(account[keyAccountSeed])
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	leaked := signedUser(t, user, id, seed)

	ended := make(chan error, 1)
	nc, err := nats.Connect(url, clientTLS(t, v, true), leaked, nats.NoReconnect(), nats.ClosedHandler(func(nc *nats.Conn) { ended <- nc.LastError() }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	other, err := nats.Connect(url, clientTLS(t, v, true), userOf(t, id, seed))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	keys, auth := v.data(t, "substorm-nats-operator"), v.data(t, "substorm"+authSecret)
	accounts, err := Revoke(keys, auth, []string{public}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	snc := asSystem(t, v, url, keys)
	var said strings.Builder
	if err := Announce(ctx, snc, accounts, 1, &said); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "jwt updated") {
		t.Errorf("it said %q", said.String())
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("the connection of the revoked user goes on")
	}
	for what, at := range map[string]string{"the server that runs": url, "a server that starts later": startNATS(t, v)} {
		if nc, err := nats.Connect(at, clientTLS(t, v, true), leaked); err == nil || !isAuth(err) {
			t.Errorf("%s: a revoked user gets %v", what, err)
			closeIfOpen(nc)
		}
		nc, err := nats.Connect(at, clientTLS(t, v, true), userOf(t, id, seed))
		if err != nil {
			t.Errorf("%s: another user gets %v", what, err)
		}
		closeIfOpen(nc)
	}
	if err := other.Flush(); err != nil || other.Status() != nats.CONNECTED {
		t.Errorf("another user's connection is %s: %v", other.Status(), err)
	}
	if err := makeKeys(t, v); err != nil {
		t.Errorf("the keys are refused afterwards: %v", err)
	}
	if _, err := Revoke(keys, auth, []string{id}, time.Now()); err == nil || !strings.Contains(err.Error(), "substorm credentials ls") {
		t.Errorf("an account's key in a user's place: %v", err)
	}
}

// asSystem connects as the user of the system account.
func asSystem(t *testing.T, v *Memory, url string, keys map[string][]byte) *nats.Conn {
	t.Helper()
	system, err := systemUser(keys)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, clientTLS(t, v, true), system)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestRevokedUserOfAnAccountThatNobodyUses: a server uses the account's token in its configuration until a user of the account connects,
// and would accept the revoked user by that token. It is notified nevertheless.
func TestRevokedUserOfAnAccountThatNobodyUses(t *testing.T) {
	v := complete(t)
	url := startNATS(t, v)
	account := v.data(t, "substorm-nats-consumers")
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	leaked := signedUser(t, user, string(account[keyAccountID]), string(account[keyAccountSeed]))

	keys := v.data(t, "substorm-nats-operator")
	accounts, err := Revoke(keys, v.data(t, "substorm"+authSecret), []string{public}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	snc := asSystem(t, v, url, keys)
	var said strings.Builder
	if err := Announce(ctx, snc, accounts, 1, &said); err != nil {
		t.Error(err)
	}
	if nc, err := nats.Connect(url, clientTLS(t, v, true), leaked); err == nil || !isAuth(err) {
		t.Errorf("a revoked user gets %v; the command said\n%s", err, &said)
		closeIfOpen(nc)
	}
	if strings.Contains(said.String(), "skipped") || strings.Count(said.String(), "jwt updated") != len(accounts) {
		t.Errorf("it said %q", said.String())
	}

	// A server of the cluster that does not answer, and one that refuses, are named, and the command fails.
	if err := Announce(ctx, snc, accounts, 2, &said); err == nil || !strings.Contains(err.Error(), "1 of 2 servers") {
		t.Errorf("with a server that does not answer: %v", err)
	}
	other := complete(t)
	theirs, err := Revoke(other.data(t, "substorm-nats-operator"), other.data(t, "substorm"+authSecret), []string{public}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := Announce(ctx, snc, theirs, 1, &said); err == nil || strings.Count(err.Error(), "does not accept") != len(theirs) {
		t.Errorf("with accounts of another operator: %v", err)
	}
}

// TestFullResolverStoresWhatIsPushed: a server with a full resolver, as operators of NATS run them, accepts an account's token before any
// user of the account has connected: the account need not be loaded first.
func TestFullResolverStoresWhatIsPushed(t *testing.T) {
	v := complete(t)
	url := startNATSWith(t, v, `{ type: full, dir: "{dir}/jwt" }`)
	account := v.data(t, "substorm-nats-consumers")
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	leaked := signedUser(t, user, string(account[keyAccountID]), string(account[keyAccountSeed]))
	keys := v.data(t, "substorm-nats-operator")
	accounts, err := Revoke(keys, v.data(t, "substorm"+authSecret), []string{public}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	snc := asSystem(t, v, url, keys)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id := string(account[keyAccountID])
	if _, err := request(ctx, snc, "$SYS.REQ.ACCOUNT."+id+".CLAIMS.UPDATE", []byte(accounts[id]), nil); err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(url, clientTLS(t, v, true), leaked); err == nil || !isAuth(err) {
		t.Errorf("a revoked user gets %v", err)
		closeIfOpen(nc)
	}
}

func isAuth(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthRevoked) || strings.Contains(err.Error(), "revoked")
}
