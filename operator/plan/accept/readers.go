// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// ReadersSecrets is the Secret with the tokens of a Site's named readers.
func ReadersSecrets(site *v1alpha1.Site) []workload.SecretNeed {
	if site == nil || site.Spec.ReadersSecretRef == nil {
		return nil
	}
	return []workload.SecretNeed{{Field: "spec.readersSecretRef", Name: site.Spec.ReadersSecretRef.Name}}
}

// ReaderCertificates returns the names by which each of a Site's readers is known, without the names that two of them have: those admit no
// reader. Sorted.
func ReaderCertificates(site *v1alpha1.Site) map[string][]string {
	all := map[string][]string{}
	several := severalHave(site)
	for i := range site.Spec.Readers {
		r := &site.Spec.Readers[i]
		var own []string
		for _, name := range r.ClientCertificate.Names {
			if !slices.Contains(several, strings.ToLower(name)) {
				own = append(own, name)
			}
		}
		if slices.Sort(own); len(own) > 0 {
			all[r.Name] = own
		}
	}
	return all
}

// severalHave are the names of certificates that more than one reader has, in lower
// case, as DNS names are compared. Sorted.
func severalHave(site *v1alpha1.Site) []string {
	of := map[string]string{}
	several := map[string]bool{}
	for i := range site.Spec.Readers {
		for _, name := range site.Spec.Readers[i].ClientCertificate.Names {
			name = strings.ToLower(name)
			if first, has := of[name]; has && first != site.Spec.Readers[i].Name {
				several[name] = true
			}
			of[name] = site.Spec.Readers[i].Name
		}
	}
	return slices.Sorted(maps.Keys(several))
}

// ReadersProblem reports which of a Site's readers have no access at all.
func ReadersProblem(site *v1alpha1.Site, secrets workload.Secrets) (finding.Finding, bool) {
	if f, found := readersSecretProblem(site, secrets); found {
		return f, true
	}
	several := severalHave(site)
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"several of spec.readers have the clientCertificate names %s: a name is one reader's; until then it lets nobody in", finding.List(several))), len(several) > 0
}

// ReadersUndeclared says which tokens of readers stay valid although no manifest declares them any more.
func ReadersUndeclared(site *v1alpha1.Site, secrets workload.Secrets) (finding.Finding, bool) {
	if site.Spec.ReadersSecretRef == nil {
		return finding.Finding{}, false
	}
	name := site.Spec.ReadersSecretRef.Name
	secret := secrets[name]
	if secret == nil {
		return finding.Finding{}, false
	}
	keys := UnownedKeys(secret.ManagedFields, maps.Keys(secret.Data))
	return finding.Bad(v1alpha1.ReasonTokensUndeclared, fmt.Sprintf(
		"no manifest declares %s of Secret %q, which spec.readersSecretRef names, and their tokens are valid: a key that is taken out of stringData stays. "+
			"Remove each with `kubectl patch secret %s --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/KEY\"}]'`, and write tokens under data",
		finding.List(keys), name, name)), len(keys) > 0
}

// UnownedKeys returns the keys of a Secret's data that no field manager owns: keys that were written under stringData and then removed from
// the manifest. Sorted; none if it is not known who owns what.
func UnownedKeys(managers []metav1.ManagedFieldsEntry, keys iter.Seq[string]) []string {
	if len(managers) == 0 {
		return nil
	}
	var owned []*fieldpath.Set
	for _, m := range managers {
		fields := fieldpath.NewSet()
		if m.FieldsV1 == nil || fields.FromJSON(m.FieldsV1.GetRawReader()) != nil {
			return nil
		}
		owned = append(owned, fields)
	}
	var unowned []string
	for key := range keys {
		if !slices.ContainsFunc(owned, func(fields *fieldpath.Set) bool { return owns(fields, "data", key) || owns(fields, "stringData", key) }) {
			unowned = append(unowned, key)
		}
	}
	slices.Sort(unowned)
	return unowned
}

// owns says whether a field manager owns a key of a map. A manager that created the map owns it as well as its own keys, and not those that
// others add; a manager that owns the map and no key of it owns all of it.
func owns(fields *fieldpath.Set, part, key string) bool {
	return fields.Has(fieldpath.MakePathOrDie(part, key)) ||
		fields.Has(fieldpath.MakePathOrDie(part)) && fields.WithPrefix(fieldpath.PathElement{FieldName: &part}).Empty()
}

func readersSecretProblem(site *v1alpha1.Site, secrets workload.Secrets) (finding.Finding, bool) {
	if site.Spec.ReadersSecretRef == nil {
		return finding.Finding{}, false
	}
	name := site.Spec.ReadersSecretRef.Name
	secret := secrets[name]
	if secret == nil {
		return finding.Bad(v1alpha1.ReasonSecretNotFound, fmt.Sprintf(
			"Secret %q, which spec.readersSecretRef names, does not exist: create it with the label %s=true and a key for each reader; until then no named reader is let in", name, LabelTokens)), true
	}
	if f, found := NotTokens(secret, name, "spec.readersSecretRef"); found {
		return f, true
	}
	var amiss []string
	for _, reader := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(validation.IsDNS1123Label(reader)) > 0 || TooGuessable(secret, reader) {
			amiss = append(amiss, reader)
		}
	}
	return finding.Bad(v1alpha1.ReasonSecretIncomplete, fmt.Sprintf(
		"Secret %q, which spec.readersSecretRef names, is not in order at %s: a key is a DNS label, and holds 1 to %d tokens, a line each, of at least %d characters: "+
			"make one with `openssl rand -hex 32`; until then these readers are not let in", name, finding.List(amiss), maxTokens, minToken)), len(amiss) > 0
}
