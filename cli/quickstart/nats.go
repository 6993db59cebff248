// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/natsaccounts"
)

// The keys of the Secret <prefix>-nats-operator, which no pod mounts.
const (
	keyOperatorSeed = "operator.seed"
	keyOperatorJWT  = "operator.jwt"
	keySystemSeed   = "system.seed"
	keyAccountRoot  = "account-root.seed"
	keySigningSeed  = "account-signing.seed"
)

// The keys of the Secret <prefix>-nats-auth, beside those of each sideAccount. Only keyAuthConf is for the server; the
// seeds stay out of its pods.
const (
	keyAccountJWT = "account.jwt"
	// keyAuthConf is a piece of the server's configuration: who the operator is, and its accounts.
	keyAuthConf = "auth.conf"
)

// sideAccount is the name of an account beside SUBSTORM. In lower case it begins the account's keys in
// <prefix>-nats-auth, and ends the name of the Secret with its signing key.
type sideAccount string

var sideAccounts = []sideAccount{natsaccounts.Consumers, natsaccounts.Commands, natsaccounts.Leaves}

func (a sideAccount) lower() string   { return strings.ToLower(string(a)) }
func (a sideAccount) root() string    { return a.lower() + "-root.seed" }
func (a sideAccount) signing() string { return a.lower() + "-signing.seed" }
func (a sideAccount) jwt() string     { return a.lower() + ".jwt" }

// secret names its Secret with what it takes to issue users of the account.
func (a sideAccount) secret(c Config) string { return c.Prefix + "-nats-" + a.lower() }

// claims begins the account's claims, from the keys in data.
func (a sideAccount) claims(data map[string][]byte) (*jwt.AccountClaims, error) {
	return accountOf(string(a), data, a.root(), data, a.signing())
}

// The keys of the Secrets <prefix>-nats-account, -consumers, -commands and -leaves, which a Site names in accountKeySecretRef,
// consumerAccountKeySecretRef, commandAccountKeySecretRef and leafAccountKeySecretRef of jetStream.
const (
	keyAccountSeed = "account.seed"
	keyAccountID   = "account.id"
)

// natsOperator makes the keys of the operator, its system account, and the account SUBSTORM with a signing key. All in
// one Secret, so that a run that is interrupted leaves all of it or nothing.
func natsOperator(c Config) recipe {
	return recipe{
		name:     c.Prefix + "-nats-operator",
		kind:     corev1.SecretTypeOpaque,
		keys:     []string{keyOperatorSeed, keyOperatorJWT, keySystemSeed, keyAccountRoot, keySigningSeed},
		children: []string{c.Prefix + "-nats-auth", c.Prefix + "-nats-account"},
		make:     makeNATSOperator,
		check:    checkNATSOperator,
	}
}

func makeNATSOperator() (map[string][]byte, error) {
	data := map[string][]byte{}
	for name, prefix := range map[string]nkeys.PrefixByte{keyOperatorSeed: nkeys.PrefixByteOperator, keySystemSeed: nkeys.PrefixByteAccount,
		keyAccountRoot: nkeys.PrefixByteAccount, keySigningSeed: nkeys.PrefixByteAccount} {
		var err error
		if data[name], err = newSeed(prefix); err != nil {
			return nil, err
		}
	}
	operator, err := pairOf(data, keyOperatorSeed)
	if err != nil {
		return nil, err
	}
	system, err := pairOf(data, keySystemSeed)
	if err != nil {
		return nil, err
	}
	token, err := signOperator(operator, system)
	data[keyOperatorJWT] = []byte(token)
	return data, err
}

func newSeed(prefix nkeys.PrefixByte) ([]byte, error) {
	pair, err := nkeys.CreatePairWithRand(prefix, rand.Reader)
	if err != nil {
		return nil, err
	}
	return pair.Seed()
}

func signOperator(operator, system nkeys.KeyPair) (string, error) {
	id, err := operator.PublicKey()
	if err != nil {
		return "", err
	}
	claims := jwt.NewOperatorClaims(id)
	claims.Name = "substorm-quickstart"
	if claims.SystemAccount, err = system.PublicKey(); err != nil {
		return "", err
	}
	return claims.Encode(operator)
}

func checkNATSOperator(data map[string][]byte) error {
	operator, err := publicKey(data, keyOperatorSeed)
	if err != nil {
		return err
	}
	claims, err := jwt.DecodeOperatorClaims(string(data[keyOperatorJWT]))
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", keyOperatorJWT, err)
	}
	if claims.Issuer != operator {
		return fmt.Errorf("%s was signed by another operator than %s: restore the secret from a backup", keyOperatorJWT, keyOperatorSeed)
	}
	return nil
}

// natsAuth makes the accounts' claims from the keys in parent, the keys of the accounts CONSUMERS, COMMANDS and LEAVES,
// and the servers' configuration with them.
func natsAuth(c Config, parent map[string][]byte) recipe {
	r := recipe{
		name:  c.Prefix + "-nats-auth",
		kind:  corev1.SecretTypeOpaque,
		keys:  []string{keyAccountJWT, keyAuthConf},
		make:  func() (map[string][]byte, error) { return makeNATSAuth(parent) },
		check: func(data map[string][]byte) error { return checkNATSAuth(data, parent) },
		// If data and parent contradict each other, it adds nothing.
		complete: func(data map[string][]byte) (bool, error) {
			if err := checkSigned(data, parent); err != nil {
				return false, err
			}
			return completeNATSAuth(data, parent)
		},
	}
	for _, a := range sideAccounts {
		r.keys = append(r.keys, a.root(), a.signing(), a.jwt())
		r.children = append(r.children, a.secret(c))
	}
	return r
}

// linkAccounts has accounts export and import what they need of each other.
func linkAccounts(substorm *jwt.AccountClaims, side map[sideAccount]*jwt.AccountClaims, parent, data map[string][]byte) error {
	substormSigner, err := pairOf(parent, keySigningSeed)
	if err != nil {
		return err
	}
	leavesSigner, err := pairOf(data, sideAccount(natsaccounts.Leaves).signing())
	if err != nil {
		return err
	}
	natsaccounts.EnableJetStream(substorm)
	natsaccounts.ExportServices(substorm)
	leaves := side[natsaccounts.Leaves]
	natsaccounts.EnableJetStream(leaves)
	natsaccounts.ExportCopies(leaves)
	return errors.Join(
		natsaccounts.ImportServices(side[natsaccounts.Consumers], natsaccounts.ConsumerServices, substorm.Subject, substormSigner),
		natsaccounts.ImportServices(side[natsaccounts.Commands], natsaccounts.CommandServices, substorm.Subject, substormSigner),
		natsaccounts.ImportCopies(substorm, leaves.Subject, leavesSigner))
}

// accountOf begins the claims of an account whose key is in root, and whose signing key, where it has one, in signing.
func accountOf(name string, root map[string][]byte, rootKey string, signing map[string][]byte, signingKey string) (*jwt.AccountClaims, error) {
	id, err := publicKey(root, rootKey)
	if err != nil {
		return nil, err
	}
	claims := jwt.NewAccountClaims(id)
	claims.Name = name
	if signing != nil {
		signer, err := publicKey(signing, signingKey)
		if err != nil {
			return nil, err
		}
		claims.SigningKeys.Add(signer)
	}
	return claims, nil
}

// checkNATSAuth says what is wrong with the accounts. All of them must be there.
func checkNATSAuth(data, parent map[string][]byte) error {
	for _, key := range append([]string{keyAccountJWT}, sideTokens()...) {
		if len(data[key]) == 0 {
			return fmt.Errorf("%s is missing", key)
		}
	}
	return checkSigned(data, parent)
}

func sideTokens() []string {
	var keys []string
	for _, a := range sideAccounts {
		keys = append(keys, a.jwt())
	}
	return keys
}

// checkSigned says what is wrong with the accounts that are there.
func checkSigned(data, parent map[string][]byte) error {
	operator, err := publicKey(parent, keyOperatorSeed)
	if err != nil {
		return err
	}
	type account struct {
		token, seed string
		from        map[string][]byte
	}
	accounts := []account{{keyAccountJWT, keySigningSeed, parent}}
	for _, a := range sideAccounts {
		accounts = append(accounts, account{a.jwt(), a.signing(), data})
	}
	for _, account := range accounts {
		if len(data[account.token]) == 0 {
			continue
		}
		claims, err := jwt.DecodeAccountClaims(string(data[account.token]))
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", account.token, err)
		}
		signing, err := publicKey(account.from, account.seed)
		if err != nil {
			return err
		}
		switch {
		case claims.Issuer != operator:
			return fmt.Errorf("%s was signed by another operator than %s: restore the secret from a backup", account.token, keyOperatorSeed)
		case !claims.SigningKeys.Contains(signing):
			return fmt.Errorf("%s does not name %s: restore the secret from a backup", account.token, account.seed)
		}
	}
	return nil
}

// natsAccount is what the operator of Substorm needs to issue users of the account SUBSTORM.
func natsAccount(c Config, operator map[string][]byte) recipe {
	return accountKey(c.Prefix+"-nats-account", operator, keyAccountRoot, keySigningSeed,
		"account.id is not the account in the operator's secret: delete the one that the streams were not made with")
}

// recipe is of the Secret with what it takes to issue users of the account.
func (a sideAccount) recipe(c Config, auth map[string][]byte) recipe {
	return accountKey(a.secret(c), auth, a.root(), a.signing(),
		"account.id is not the account in secret "+c.Prefix+"-nats-auth: delete the secret to have it made again")
}

// accountKey is a signing key of an account, and its name.
func accountKey(name string, parent map[string][]byte, root, signing, otherwise string) recipe {
	return recipe{
		name: name,
		kind: corev1.SecretTypeOpaque,
		keys: []string{keyAccountSeed, keyAccountID},
		make: func() (map[string][]byte, error) {
			id, err := publicKey(parent, root)
			return map[string][]byte{keyAccountSeed: parent[signing], keyAccountID: []byte(id)}, err
		},
		check: func(data map[string][]byte) error {
			id, err := publicKey(parent, root)
			if err != nil {
				return err
			}
			if string(data[keyAccountID]) != id {
				return errors.New(otherwise)
			}
			_, err = publicKey(data, keyAccountSeed)
			return err
		},
	}
}

// publicKey returns the public half of the seed under key.
func publicKey(data map[string][]byte, key string) (string, error) {
	pair, err := pairOf(data, key)
	if err != nil {
		return "", err
	}
	return pair.PublicKey()
}

func pairOf(data map[string][]byte, key string) (nkeys.KeyPair, error) {
	pair, err := nkeys.FromSeed(data[key])
	if err != nil {
		return nil, fmt.Errorf("%s is not a seed: %w", key, err)
	}
	return pair, nil
}
