// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/operator/plan"
)

// accountKey issues users of the Site's account.
type accountKey struct {
	pair nkeys.KeyPair
	// account and issuer are public keys; they differ for a signing key.
	account, issuer string
}

func readAccountKey(secret *corev1.Secret) (accountKey, error) {
	pair, err := nkeys.FromSeed([]byte(value(secret, plan.KeyAccountSeed)))
	if err != nil {
		return accountKey{}, fmt.Errorf("%s is no seed of an nkey", plan.KeyAccountSeed)
	}
	issuer, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicAccountKey(issuer) {
		return accountKey{}, fmt.Errorf("%s is no seed of an account: those begin with SA", plan.KeyAccountSeed)
	}
	account := value(secret, plan.KeyAccountID)
	if !nkeys.IsValidPublicAccountKey(account) {
		return accountKey{}, fmt.Errorf("%s is no public key of an account: those begin with A", plan.KeyAccountID)
	}
	return accountKey{pair: pair, account: account, issuer: issuer}, nil
}

func value(secret *corev1.Secret, key string) string {
	return strings.TrimSpace(string(secret.Data[key]))
}

// mint issues credentials (a .creds file) for a new user that may do what the
// plan says and no more. They do not expire: the pool they are for goes on
// when the operator is away.
func (k accountKey) mint(user plan.JetStreamUser) ([]byte, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", user.Name, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", user.Name, err)
	}
	claims := jwt.NewUserClaims(public)
	claims.Name = user.Name
	if k.issuer != k.account {
		claims.IssuerAccount = k.account
	}
	claims.Pub.Allow.Add(user.Publish...)
	claims.Pub.Deny.Add(user.DenyPublish...)
	claims.Sub.Allow.Add(user.Subscribe...)
	if user.LeafOnly {
		claims.AllowedConnectionTypes.Add(jwt.ConnectionTypeLeafnode)
	}
	token, err := claims.Encode(k.pair)
	if err != nil {
		return nil, fmt.Errorf("sign the token of %s: %w", user.Name, err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", user.Name, err)
	}
	return jwt.FormatUserConfig(token, seed)
}

// readTLS reads what a backend is recognized by, and what shows who we are.
func readTLS(secret *corev1.Secret) (*tls.Config, error) {
	return objectstore.TLSConfig(secret.Data[plan.KeyCA], secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
}
