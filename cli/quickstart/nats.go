// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret <prefix>-nats-operator. Only keyAuthConf is for the server; the seeds stay out of its pods.
const (
	keyOperatorSeed = "operator.seed"
	keyOperatorJWT  = "operator.jwt"
	keySystemSeed   = "system.seed"
	keyAccountRoot  = "account-root.seed"
	keyAccountJWT   = "account.jwt"
	keySigningSeed  = "account-signing.seed"
	// keyAuthConf is a piece of the server's configuration: who the operator is, and its two accounts.
	keyAuthConf = "auth.conf"
)

// The keys of the Secret <prefix>-nats-account, which a Site names in jetStream.accountKeySecretRef.
const (
	keyAccountSeed = "account.seed"
	keyAccountID   = "account.id"
)

// The names of the accounts.
const (
	accountSystem   = "SYS"
	accountSubstorm = "SUBSTORM"
)

// natsOperator makes the operator, its system account, and the account SUBSTORM with a signing key. All in one Secret,
// so that a run that is interrupted leaves all of it or nothing.
func natsOperator(c Config) recipe {
	return recipe{
		name:     c.Prefix + "-nats-operator",
		kind:     corev1.SecretTypeOpaque,
		keys:     []string{keyOperatorSeed, keyOperatorJWT, keySystemSeed, keyAccountRoot, keyAccountJWT, keySigningSeed, keyAuthConf},
		children: []string{c.Prefix + "-nats-account"},
		make:     makeNATSOperator,
		check:    checkNATSOperator,
	}
}

func makeNATSOperator() (map[string][]byte, error) {
	var keys [4]nkeys.KeyPair // operator, system account, account, account's signing key
	for i, prefix := range []nkeys.PrefixByte{nkeys.PrefixByteOperator, nkeys.PrefixByteAccount, nkeys.PrefixByteAccount, nkeys.PrefixByteAccount} {
		k, err := nkeys.CreatePairWithRand(prefix, rand.Reader)
		if err != nil {
			return nil, err
		}
		keys[i] = k
	}
	operator, system, account, signing := keys[0], keys[1], keys[2], keys[3]
	accountJWT, err := signAccount(operator, account, accountSubstorm, func(claims *jwt.AccountClaims) error {
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
			MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
			MaxAckPending: jwt.NoLimit, MemoryMaxStreamBytes: jwt.NoLimit, DiskMaxStreamBytes: jwt.NoLimit,
		}
		id, err := signing.PublicKey()
		claims.SigningKeys.Add(id)
		return err
	})
	if err != nil {
		return nil, err
	}
	systemJWT, err := signAccount(operator, system, accountSystem, func(*jwt.AccountClaims) error { return nil })
	if err != nil {
		return nil, err
	}
	operatorJWT, err := signOperator(operator, system)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{keyOperatorJWT: []byte(operatorJWT), keyAccountJWT: []byte(accountJWT)}
	for i, name := range []string{keyOperatorSeed, keySystemSeed, keyAccountRoot, keySigningSeed} {
		if data[name], err = keys[i].Seed(); err != nil {
			return nil, err
		}
	}
	data[keyAuthConf], err = authConf(operatorJWT, systemJWT, accountJWT)
	return data, err
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

func signAccount(operator, account nkeys.KeyPair, name string, with func(*jwt.AccountClaims) error) (string, error) {
	id, err := account.PublicKey()
	if err != nil {
		return "", err
	}
	claims := jwt.NewAccountClaims(id)
	claims.Name = name
	if err := with(claims); err != nil {
		return "", err
	}
	return claims.Encode(operator)
}

func authConf(operatorJWT, systemJWT, accountJWT string) ([]byte, error) {
	system, err := jwt.DecodeAccountClaims(systemJWT)
	if err != nil {
		return nil, err
	}
	account, err := jwt.DecodeAccountClaims(accountJWT)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `operator: %s
system_account: %s
resolver: MEMORY
resolver_preload: {
  # %s
  %s: %s
  # %s
  %s: %s
}
`, operatorJWT, system.Subject, system.Name, system.Subject, systemJWT, account.Name, account.Subject, accountJWT), nil
}

func checkNATSOperator(data map[string][]byte) error {
	operator, err := publicKey(data, keyOperatorSeed)
	if err != nil {
		return err
	}
	signing, err := publicKey(data, keySigningSeed)
	if err != nil {
		return err
	}
	account, err := jwt.DecodeAccountClaims(string(data[keyAccountJWT]))
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", keyAccountJWT, err)
	}
	switch {
	case account.Issuer != operator:
		return fmt.Errorf("%s was signed by another operator than %s: restore the secret from a backup", keyAccountJWT, keyOperatorSeed)
	case !account.SigningKeys.Contains(signing):
		return fmt.Errorf("%s does not name %s: restore the secret from a backup", keyAccountJWT, keySigningSeed)
	}
	return nil
}

// natsAccount is what the operator of Substorm needs to issue users: a signing key of the account, and its name.
func natsAccount(c Config, parent map[string][]byte) recipe {
	return recipe{
		name: c.Prefix + "-nats-account",
		kind: corev1.SecretTypeOpaque,
		keys: []string{keyAccountSeed, keyAccountID},
		make: func() (map[string][]byte, error) {
			id, err := publicKey(parent, keyAccountRoot)
			return map[string][]byte{keyAccountSeed: parent[keySigningSeed], keyAccountID: []byte(id)}, err
		},
		check: func(data map[string][]byte) error {
			id, err := publicKey(parent, keyAccountRoot)
			if err != nil {
				return err
			}
			if string(data[keyAccountID]) != id {
				return errors.New("account.id is not the account in the operator's secret: delete the one that the streams were not made with")
			}
			_, err = publicKey(data, keyAccountSeed)
			return err
		},
	}
}

// publicKey returns the public half of the seed under key.
func publicKey(data map[string][]byte, key string) (string, error) {
	pair, err := nkeys.FromSeed(data[key])
	if err != nil {
		return "", fmt.Errorf("%s is no seed: %w", key, err)
	}
	return pair.PublicKey()
}
