// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/natsaccounts"
)

// outdate makes the Secrets what an earlier release made of them: without the accounts COMMANDS and LEAVES, and with what
// SUBSTORM exports to CONSUMERS alone.
func outdate(t *testing.T, v *Memory) {
	t.Helper()
	parent, auth := v.data(t, "substorm-nats-operator"), v.data(t, "substorm-nats-auth")
	operator, err := pairOf(parent, keyOperatorSeed)
	if err != nil {
		t.Fatal(err)
	}
	substorm, err := jwt.DecodeAccountClaims(string(auth[keyAccountJWT]))
	if err != nil {
		t.Fatal(err)
	}
	substorm.Imports = nil
	substorm.Exports = substorm.Exports[:len(natsaccounts.ConsumerServices)]
	for _, a := range []sideAccount{natsaccounts.Commands, natsaccounts.Leaves} {
		for _, key := range []string{a.root(), a.signing(), a.jwt()} {
			delete(auth, key)
		}
		v.remove("substorm-nats-" + a.lower())
	}
	system, err := accountOf(natsaccounts.System, parent, keySystemSeed, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	token, err := substorm.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	servers, err := system.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	auth[keyAccountJWT] = []byte(token)
	consumers := sideAccount(natsaccounts.Consumers)
	if auth[keyAuthConf], err = natsaccounts.Config(string(parent[keyOperatorJWT]), servers, token, string(auth[consumers.jwt()])); err != nil {
		t.Fatal(err)
	}
}

// leak is a user of SUBSTORM, and an option to connect as it.
func leak(t *testing.T, v *Memory) (public string, as nats.Option) {
	t.Helper()
	account := v.data(t, "substorm-nats-account")
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = user.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return public, signedUser(t, user, string(account[keyAccountID]), string(account[keyAccountSeed]))
}

// letsIn says whether a server that starts now lets a user in.
func letsIn(t *testing.T, v *Memory, user nats.Option) bool {
	t.Helper()
	nc, err := nats.Connect(startNATS(t, v), clientTLS(t, v, true), user)
	closeIfOpen(nc)
	if err != nil && !isAuth(err) {
		t.Fatal(err)
	}
	return err == nil
}

// TestKeysOfAnEarlierReleaseAreCompleted: what is missing is made, what is there stays, and who was revoked stays out.
func TestKeysOfAnEarlierReleaseAreCompleted(t *testing.T) {
	v := complete(t)
	outdate(t, v)
	revoked, asRevoked := leak(t, v)
	_, asOther := leak(t, v)
	auth := v.data(t, "substorm-nats-auth")
	if _, err := Revoke(maps.Clone(v.data(t, "substorm-nats-operator")), auth, []string{revoked}, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(auth)

	if err := makeKeys(t, v); err != nil {
		t.Fatal(err)
	}
	after := v.data(t, "substorm-nats-auth")
	for key, value := range before {
		if bytes.HasSuffix([]byte(key), []byte(".seed")) && !bytes.Equal(after[key], value) {
			t.Errorf("%s was replaced", key)
		}
	}
	for _, a := range sideAccounts {
		account := v.data(t, a.secret(config))
		nc, err := nats.Connect(startNATS(t, v), clientTLS(t, v, true), userOf(t, string(account[keyAccountID]), string(account[keyAccountSeed])))
		if err != nil {
			t.Errorf("a user of %s: %v", a, err)
		}
		closeIfOpen(nc)
	}
	if letsIn(t, v, asRevoked) || !letsIn(t, v, asOther) {
		t.Error("the revoked user gets in, or another one does not")
	}
	claims, err := jwt.DecodeAccountClaims(string(after[keyAccountJWT]))
	whole, err2 := jwt.DecodeAccountClaims(string(complete(t).data(t, "substorm-nats-auth")[keyAccountJWT]))
	if err != nil || err2 != nil || len(claims.Exports) != len(whole.Exports) || len(claims.Imports) != len(whole.Imports) {
		t.Errorf("SUBSTORM exports %d and imports %d, not %d and %d", len(claims.Exports), len(claims.Imports), len(whole.Exports), len(whole.Imports))
	}

	still := maps.Clone(after)
	if err := makeKeys(t, v); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(still, v.data(t, "substorm-nats-auth")); diff != "" {
		t.Error("another run changes what is complete")
	}
}

// TestRevokedUsersStayOutWhenTheSecretIsMadeAnew: the list of revoked users is with the operator's keys, too.
func TestRevokedUsersStayOutWhenTheSecretIsMadeAnew(t *testing.T) {
	v := complete(t)
	revoked, asRevoked := leak(t, v)
	_, asOther := leak(t, v)
	if _, err := Revoke(v.data(t, "substorm-nats-operator"), v.data(t, "substorm-nats-auth"), []string{revoked}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"substorm-nats-auth", "substorm-nats-consumers", "substorm-nats-commands", "substorm-nats-leaves"} {
		v.remove(name)
	}
	if err := makeKeys(t, v); err != nil {
		t.Fatal(err)
	}
	if letsIn(t, v, asRevoked) || !letsIn(t, v, asOther) {
		t.Error("the revoked user gets in, or another one does not")
	}

	// A list that lacks in the accounts is put there.
	public, as := leak(t, v)
	if _, err := Revoke(v.data(t, "substorm-nats-operator"), maps.Clone(v.data(t, "substorm-nats-auth")), []string{public}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := makeKeys(t, v); err != nil {
		t.Fatal(err)
	}
	if letsIn(t, v, as) {
		t.Error("a user gets in that is revoked in the operator's Secret alone")
	}
}

// TestHalfAnAccountIsRefused: one of two keys that is gone is not replaced.
func TestHalfAnAccountIsRefused(t *testing.T) {
	v := complete(t)
	delete(v.data(t, "substorm-nats-auth"), sideAccount(natsaccounts.Leaves).root())
	if err := makeKeys(t, v); err == nil || !bytes.Contains([]byte(err.Error()), []byte("leaves-root.seed")) {
		t.Errorf("with one key of LEAVES gone: %v", err)
	}
}
