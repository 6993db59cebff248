// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// token is a JWT in a server's configuration.
var token = regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`)

// Revoke writes into auth, the data of the Secret with the servers' auth.conf, that users are revoked: what was signed for them up to a
// time is no longer accepted. Into keys, the data of the Secret with the operator's keys, it writes all revoked users, for the day that
// the first Secret is recreated. It returns the tokens of the accounts, by their public keys. That takes the operator's key, which keys
// holds; the signing key that Substorm's operator has cannot do it.
func Revoke(keys, auth map[string][]byte, users []string, at time.Time) (map[string]string, error) {
	for _, user := range users {
		if !nkeys.IsValidPublicUserKey(user) {
			return nil, fmt.Errorf("%q is not a public key of a NATS user: those begin with U, `substorm credentials ls` lists them", user)
		}
	}
	operator, err := nkeys.FromSeed(keys[keyOperatorSeed])
	if err != nil {
		return nil, fmt.Errorf("%s is not a seed: %w", keyOperatorSeed, err)
	}
	claims, err := jwt.DecodeOperatorClaims(string(keys[keyOperatorJWT]))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", keyOperatorJWT, err)
	}
	revoked, err := revokedIn(keys)
	if err != nil {
		return nil, err
	}
	accounts := map[string]string{}
	for _, old := range token.FindAll(auth[keyAuthConf], -1) {
		account, err := jwt.DecodeAccountClaims(string(old))
		if err != nil || account.Subject == claims.SystemAccount {
			continue // the operator's own token, or the account of the servers
		}
		for _, user := range users {
			account.RevokeAt(user, at)
		}
		merge(revoked, account.Revocations)
		signed, err := account.Encode(operator)
		if err != nil {
			return nil, fmt.Errorf("sign the account %s: %w", account.Name, err)
		}
		accounts[account.Subject] = signed
		for key, value := range auth {
			auth[key] = bytes.ReplaceAll(value, old, []byte(signed))
		}
	}
	if len(accounts) == 0 {
		return nil, fmt.Errorf("%s names no account", keyAuthConf)
	}
	keys[keyRevoked], err = json.Marshal(revoked)
	return accounts, err
}

// systemUser is an option for a user of the system account, for a few minutes.
func systemUser(keys map[string][]byte) (nats.Option, error) {
	signer, err := nkeys.FromSeed(keys[keySystemSeed])
	if err != nil {
		return nil, fmt.Errorf("%s is not a seed: %w", keySystemSeed, err)
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	id, err := user.PublicKey()
	if err != nil {
		return nil, err
	}
	claims := jwt.NewUserClaims(id)
	claims.Name, claims.Expires = "substorm quickstart revoke", time.Now().Add(10*time.Minute).Unix()
	signed, err := claims.Encode(signer)
	if err != nil {
		return nil, err
	}
	return nats.UserJWT(func() (string, error) { return signed, nil }, user.Sign), nil
}
