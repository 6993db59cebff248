// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/natsaccounts"
)

// keyRevoked of <prefix>-nats-operator has the revoked users, by their public keys, each with the second since 1970 up to which it is
// revoked: JSON. <prefix>-nats-auth has them in the accounts, and may be recreated.
const keyRevoked = "revoked.json"

// revokedIn are the users that keys, the data of <prefix>-nats-operator, says are revoked.
func revokedIn(keys map[string][]byte) (jwt.RevocationList, error) {
	all := jwt.RevocationList{}
	if len(keys[keyRevoked]) == 0 {
		return all, nil
	}
	if err := json.Unmarshal(keys[keyRevoked], &all); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", keyRevoked, err)
	}
	return all, nil
}

// merge adds a list of revoked users to another: of two times the later one counts.
func merge(into, from jwt.RevocationList) {
	for user, at := range from {
		into[user] = max(into[user], at)
	}
}

func makeNATSAuth(parent map[string][]byte) (map[string][]byte, error) {
	data := map[string][]byte{}
	_, err := completeNATSAuth(data, parent)
	return data, err
}

// completeNATSAuth makes the accounts that data, the data of <prefix>-nats-auth, lacks, and signs all of them again if one does not
// export, import or revoke what it should. Existing keys stay, and revoked users stay revoked.
func completeNATSAuth(data, parent map[string][]byte) (changed bool, err error) {
	for _, a := range sideAccounts {
		added, err := completeKeys(data, a)
		if err != nil {
			return false, err
		}
		changed = changed || added
	}
	keys, claims, err := accountsOf(data, parent)
	if err != nil {
		return false, err
	}
	for i, key := range keys {
		if key == "" {
			continue // the system account is made again with each configuration, and is always the same
		}
		before, err := signed(data, key)
		if err != nil {
			return false, err
		}
		if before != nil {
			claims[i].SigningKeys.Add(before.SigningKeys.Keys()...)
			if claims[i].Revocations == nil {
				claims[i].Revocations = jwt.RevocationList{}
			}
			merge(claims[i].Revocations, before.Revocations)
		}
		changed = changed || before == nil || lacks(before, claims[i])
	}
	if !changed && len(data[keyAuthConf]) > 0 {
		return false, nil
	}
	return true, signAccounts(data, parent, keys, claims)
}

// completeKeys makes the keys of a side account that data has none of.
func completeKeys(data map[string][]byte, a sideAccount) (made bool, err error) {
	has, lacking := a.root(), a.signing()
	if len(data[has]) == 0 {
		has, lacking = lacking, has
	}
	switch {
	case len(data[has]) == 0:
	case len(data[lacking]) == 0:
		return false, fmt.Errorf("%s is missing and %s is there: restore the secret from a backup", lacking, has)
	default:
		return false, nil
	}
	if len(data[a.jwt()]) > 0 {
		return false, fmt.Errorf("%s is there and its keys are not: restore the secret from a backup", a.jwt())
	}
	for _, name := range []string{a.root(), a.signing()} {
		if data[name], err = newSeed(nkeys.PrefixByteAccount); err != nil {
			return false, err
		}
	}
	return true, nil
}

// accountsOf are the claims that the accounts should have, and the keys that their tokens have in <prefix>-nats-auth:
// none for the first, the system account.
func accountsOf(data, parent map[string][]byte) (keys []string, claims []*jwt.AccountClaims, err error) {
	system, err := accountOf(natsaccounts.System, parent, keySystemSeed, nil, "")
	if err != nil {
		return nil, nil, err
	}
	substorm, err := accountOf(natsaccounts.Substorm, parent, keyAccountRoot, parent, keySigningSeed)
	if err != nil {
		return nil, nil, err
	}
	side := map[sideAccount]*jwt.AccountClaims{}
	keys, claims = []string{"", keyAccountJWT}, []*jwt.AccountClaims{system, substorm}
	for _, a := range sideAccounts {
		if side[a], err = a.claims(data); err != nil {
			return nil, nil, err
		}
		keys, claims = append(keys, a.jwt()), append(claims, side[a])
	}
	revoked, err := revokedIn(parent)
	if err != nil {
		return nil, nil, err
	}
	for _, account := range claims[1:] {
		account.Revocations = jwt.RevocationList{}
		merge(account.Revocations, revoked)
	}
	return keys, claims, linkAccounts(substorm, side, parent, data)
}

// signed is the token of an account as it was signed before; nil if there is none.
func signed(data map[string][]byte, key string) (*jwt.AccountClaims, error) {
	if len(data[key]) == 0 {
		return nil, nil
	}
	claims, err := jwt.DecodeAccountClaims(string(data[key]))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", key, err)
	}
	return claims, nil
}

// lacks says whether an account as it is does not export, import or revoke what it should.
func lacks(current, should *jwt.AccountClaims) bool {
	for _, e := range should.Exports {
		if !slices.ContainsFunc(current.Exports, func(o *jwt.Export) bool { return o.Subject == e.Subject && o.Type == e.Type }) {
			return true
		}
	}
	for _, i := range should.Imports {
		if !slices.ContainsFunc(current.Imports, func(o *jwt.Import) bool {
			return o.Subject == i.Subject && o.Account == i.Account && o.LocalSubject == i.LocalSubject
		}) {
			return true
		}
	}
	for user, at := range should.Revocations {
		if current.Revocations[user] < at {
			return true
		}
	}
	return current.Limits.JetStreamLimits != should.Limits.JetStreamLimits
}

// signAccounts writes tokens and the servers' configuration into data.
func signAccounts(data, parent map[string][]byte, keys []string, claims []*jwt.AccountClaims) error {
	operator, err := pairOf(parent, keyOperatorSeed)
	if err != nil {
		return err
	}
	tokens := make([]string, len(claims))
	for i, key := range keys {
		if tokens[i], err = claims[i].Encode(operator); err != nil {
			return err
		}
		if key != "" {
			data[key] = []byte(tokens[i])
		}
	}
	data[keyAuthConf], err = natsaccounts.Config(string(parent[keyOperatorJWT]), tokens...)
	return err
}
