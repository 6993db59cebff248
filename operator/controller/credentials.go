// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// accountKey issues users of the Site's account.
type accountKey struct {
	pair nkeys.KeyPair
	// account and issuer are public keys; they differ for a signing key.
	account, issuer string
}

func readAccountKey(secret *corev1.Secret) (accountKey, error) {
	pair, err := nkeys.FromSeed([]byte(value(secret, workload.KeyAccountSeed)))
	if err != nil {
		return accountKey{}, fmt.Errorf("%s is not a seed of an nkey", workload.KeyAccountSeed)
	}
	issuer, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicAccountKey(issuer) {
		return accountKey{}, fmt.Errorf("%s is not a seed of an account: those begin with SA", workload.KeyAccountSeed)
	}
	account := value(secret, workload.KeyAccountID)
	if !nkeys.IsValidPublicAccountKey(account) {
		return accountKey{}, fmt.Errorf("%s is not a public key of an account: those begin with A", workload.KeyAccountID)
	}
	return accountKey{pair: pair, account: account, issuer: issuer}, nil
}

// consumerAccountKey issues users of the account of consumers, or says why not.
func consumerAccountKey(site *v1alpha1.Site, secrets workload.Secrets) (accountKey, *finding.Finding) {
	return ownAccountKey(site, secrets, workload.ConsumerAccountSecrets(site), "consumers")
}

// leafAccountKey issues users of the account of leaves, or says why not.
func leafAccountKey(site *v1alpha1.Site, secrets workload.Secrets) (accountKey, *finding.Finding) {
	return ownAccountKey(site, secrets, workload.LeavesAccountSecrets(site), "leaves")
}

// ownAccountKey issues users of the account whose key the one Secret of needs holds. That
// account must not be another that the Site names, as far as these Secrets are known.
func ownAccountKey(site *v1alpha1.Site, secrets workload.Secrets, needs []workload.SecretNeed, whose string) (accountKey, *finding.Finding) {
	if missing, is := secrets.Missing(needs); is {
		return accountKey{}, &missing
	}
	need := needs[0]
	key, err := readAccountKey(secrets[need.Name])
	for _, other := range slices.Concat(workload.JetStreamSecrets(site), workload.ConsumerAccountSecrets(site), workload.CommandAccountSecrets(site), workload.LeavesAccountSecrets(site)) {
		if err == nil && other.Field != need.Field && value(secrets[other.Name], workload.KeyAccountID) == key.account {
			err = fmt.Errorf("%s is the account in Secret %q: %s need one of their own", workload.KeyAccountID, other.Name, whose)
		}
	}
	if err != nil {
		return accountKey{}, unreadable(need.Name, need.Field+" of Site "+site.Name, err)
	}
	return key, nil
}

func value(secret *corev1.Secret, key string) string {
	if secret == nil {
		return ""
	}
	return strings.TrimSpace(string(secret.Data[key]))
}

// mint issues credentials (a .creds file) for a new user with the planned permissions and no others. They are the operator's own, which no
// Secret holds, and do not expire: others are issued when the operator starts.
func (k accountKey) mint(user bus.JetStreamUser) ([]byte, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", user.Name, err)
	}
	return k.encode(claimsOf(user), pair, time.Time{})
}

// maxUserName is how much of a user's name, in bytes, its token has: the name is for
// people, and servers bound the length of tokens.
const maxUserName = 64

// userName is a user's name as its token has it.
func userName(name string) string { return name[:min(len(name), maxUserName)] }

// claimsOf returns the claims of a user's token, except the key and the expiry.
func claimsOf(user bus.JetStreamUser) *jwt.UserClaims {
	name := userName(user.Name)
	claims := jwt.NewUserClaims(name) // encode sets the subject
	claims.Name = name
	claims.Pub.Allow.Add(user.Publish...)
	claims.Pub.Deny.Add(user.DenyPublish...)
	claims.Sub.Allow.Add(user.Subscribe...)
	switch {
	case user.LeafOnly:
		claims.AllowedConnectionTypes.Add(jwt.ConnectionTypeLeafnode)
	case user.ClientOnly:
		claims.AllowedConnectionTypes.Add(jwt.ConnectionTypeStandard, jwt.ConnectionTypeWebsocket)
	}
	return claims
}

// encode makes credentials for a user's key; with a zero expiry they do not expire.
func (k accountKey) encode(claims *jwt.UserClaims, pair nkeys.KeyPair, expires time.Time) ([]byte, error) {
	var err error
	if claims.Subject, err = pair.PublicKey(); err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", claims.Name, err)
	}
	claims.Expires, claims.IssuerAccount = 0, ""
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	if k.issuer != k.account {
		claims.IssuerAccount = k.account
	}
	token, err := claims.Encode(k.pair)
	if err != nil {
		return nil, fmt.Errorf("sign the token of %s: %w", claims.Name, err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", claims.Name, err)
	}
	return jwt.FormatUserConfig(token, seed)
}

// issued returns the credentials in a Secret, whether the operator or another client wrote it; nil if it holds none that can be read.
func issued(secret *corev1.Secret) *bus.Credentials {
	claims := issuedToken(secret)
	if claims == nil {
		return nil
	}
	pair, err := jwt.ParseDecoratedUserNKey(secret.Data[workload.KeyUserCreds])
	if err != nil {
		return nil
	}
	if public, err := pair.PublicKey(); err != nil || public != claims.Subject {
		return nil
	}
	c := &bus.Credentials{User: claims.Subject, Permissions: secret.Annotations[workload.AnnotationPermissions]}
	if claims.Expires > 0 {
		c.ExpiresAt = time.Unix(claims.Expires, 0)
	}
	return c
}

// issuedToken returns the token in such a Secret; nil if there is none that is signed by the issuer that it names. That issuer may be any
// key.
func issuedToken(secret *corev1.Secret) *jwt.UserClaims {
	if secret == nil {
		return nil
	}
	token, err := jwt.ParseDecoratedJWT(secret.Data[workload.KeyUserCreds])
	if err != nil {
		return nil
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return nil
	}
	return claims
}

// firstToExpire returns the credentials that expire first; nil if none expire.
func firstToExpire(all ...*bus.Credentials) (first *bus.Credentials) {
	for _, c := range all {
		if at := expiry(c); !at.IsZero() && (first == nil || at.Before(first.ExpiresAt)) {
			first = c
		}
	}
	return first
}

func expiry(c *bus.Credentials) time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.ExpiresAt
}

// credentials handles the credentials in a Secret as the plan says, and returns the credentials file and the credentials in it. The file is
// nil if the Secret's stays.
func (k accountKey) credentials(user bus.JetStreamUser, current *corev1.Secret, rotate string, now time.Time) ([]byte, *bus.Credentials, error) {
	permissions := user.Hash(k.account, k.issuer)
	action := user.Action(issued(current), permissions, rotate, now)
	return k.issue(action, claimsOf(user), permissions, user.Lifetime(), current, now)
}

// issue makes credentials with these claims, for the key that the action asks for.
func (k accountKey) issue(action bus.CredentialsAction, claims *jwt.UserClaims, permissions string, lifetime time.Duration,
	current *corev1.Secret, now time.Time,
) ([]byte, *bus.Credentials, error) {
	var pair nkeys.KeyPair
	var err error
	switch action {
	case bus.CredentialsKept:
		return nil, issued(current), nil
	case bus.CredentialsRenewed:
		pair, err = jwt.ParseDecoratedUserNKey(current.Data[workload.KeyUserCreds])
	case bus.CredentialsReplaced:
		pair, err = nkeys.CreateUser()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", claims.Name, err)
	}
	is := &bus.Credentials{Permissions: permissions}
	if lifetime > 0 {
		is.ExpiresAt = now.Add(lifetime).Truncate(time.Second)
	}
	creds, err := k.encode(claims, pair, is.ExpiresAt)
	is.User = claims.Subject
	return creds, is, err
}

// readTLS reads the certificates that authenticate a backend, and our client certificate, from the Secrets that a field of the Site names.
func readTLS(field string, refs *v1alpha1.TLS, secrets workload.Secrets) (*tls.Config, *finding.Finding) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ref := refs.CASecretRef; ref != nil {
		authorities, err := objectstore.TLSConfig(secrets[ref.Name].Data[workload.KeyCA], nil, nil)
		if err != nil {
			return nil, unreadable(ref.Name, field+".caSecretRef", err)
		}
		config.RootCAs = authorities.RootCAs
	}
	if ref := refs.CertificateSecretRef; ref != nil {
		own, err := objectstore.TLSConfig(nil, secrets[ref.Name].Data[workload.KeyCertificate], secrets[ref.Name].Data[workload.KeyPrivateKey])
		if err != nil {
			return nil, unreadable(ref.Name, field+".certificateSecretRef", err)
		}
		config.Certificates = own.Certificates
	}
	return config, nil
}
