// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// ReadersSecrets is the Secret with the tokens of a Site's named readers.
func ReadersSecrets(site *v1alpha1.Site) []SecretNeed {
	if site == nil || site.Spec.ReadersSecretRef == nil {
		return nil
	}
	return []SecretNeed{{Field: "spec.readersSecretRef", Name: site.Spec.ReadersSecretRef.Name}}
}

// ReadersProblem says which of a Site's readers are let in nowhere.
func ReadersProblem(site *v1alpha1.Site, secrets Secrets) (Finding, bool) {
	if site.Spec.ReadersSecretRef == nil {
		return Finding{}, false
	}
	name := site.Spec.ReadersSecretRef.Name
	secret := secrets[name]
	if secret == nil {
		return bad(v1alpha1.ReasonSecretNotFound, fmt.Sprintf(
			"Secret %q, which spec.readersSecretRef names, does not exist: create it with a key for each reader; until then no named reader is let in", name)), true
	}
	var amiss []string
	for _, reader := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(validation.IsDNS1123Label(reader)) > 0 || tooGuessable(secret, reader) {
			amiss = append(amiss, reader)
		}
	}
	return bad(v1alpha1.ReasonSecretIncomplete, fmt.Sprintf(
		"Secret %q, which spec.readersSecretRef names, is not in order at %s: a key is a DNS label, and holds 1 to %d tokens, a line each, of at least %d characters: "+
			"make one with `openssl rand -hex 32`; until then these readers are not let in", name, list(amiss), maxTokens, minToken)), len(amiss) > 0
}
