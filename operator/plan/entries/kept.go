// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"cmp"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// UnreadableObject names one.
type UnreadableObject struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Problem string `json:"problem"`
}

// UnreadableObjects are those of a Site, by kind and name: itself, its pools, FeedServers,
// Instruments, Feeds, their FeedConsumers, and MirrorPartners.
func UnreadableObjects(in Input, gateways []v1alpha1.IngestGateway, servers []v1alpha1.FeedServer) []UnreadableObject {
	var all []UnreadableObject
	add := func(kind string, o metav1.Object) {
		if problem := finding.Unreadable(o); problem != "" {
			all = append(all, UnreadableObject{kind, o.GetName(), problem})
		}
	}
	if in.Site != nil {
		add("Site", in.Site)
	}
	for i := range gateways {
		add("IngestGateway", &gateways[i])
	}
	for i := range servers {
		add("FeedServer", &servers[i])
	}
	for i := range in.Instruments {
		add("Instrument", &in.Instruments[i])
	}
	for i := range in.Feeds {
		add("Feed", &in.Feeds[i])
	}
	for i := range in.Consumers {
		if feed := in.Consumers[i].Spec.FeedRef.Name; feed == "" || accept.FeedNamed(in.Feeds, feed) != nil {
			add("FeedConsumer", &in.Consumers[i])
		}
	}
	for i := range in.Mirrors {
		add("MirrorPartner", &in.Mirrors[i])
	}
	slices.SortFunc(all, func(a, b UnreadableObject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// keptInstrument is what becomes of the entry of an Instrument that cannot be decoded: it stays, except for a legal hold that begins, and
// for tokens that are in none of its Secrets any more. If its listeners cannot be read, these Secrets are not known.
func (in Input) keptInstrument(inst *v1alpha1.Instrument, was wire.InstrumentEntry, next int64) wire.InstrumentEntry {
	is := was
	if len(inst.Spec.Listeners) > 0 {
		is.Listeners = accept.HeldByListeners(inst, was.Listeners, in.Secrets)
	}
	is.LegalHold = was.LegalHold || underHold(in.Site, inst)
	if !sameEntry(was, is) {
		is.Revision = next
	}
	return is
}

// keptConsumer is what becomes of the entry of a FeedConsumer that cannot be decoded: it stays, except for a token that is not in its
// Secret any more.
func (in Input) keptConsumer(c *v1alpha1.FeedConsumer, was wire.ConsumerEntry, next int64) wire.ConsumerEntry {
	var tokens []string
	if secret := in.Secrets[bus.ConsumerSecretName(c)]; secret != nil && metav1.IsControlledBy(secret, c) {
		tokens = accept.TokensOf(secret, bus.KeyToken)
	}
	is := was
	if is.Tokens = accept.Held(was.Tokens, tokens); !reflect.DeepEqual(was, is) {
		is.Revision = next
	}
	return is
}

// keptReaders is what becomes of the readers of a Site that cannot be decoded: they stay, except for tokens and names of certificates that
// are not in the Secret, or the Site, any more. If the Site's reference to the Secret, or its list of readers, cannot be read, these are
// not known.
func (in Input) keptReaders(stands observed.RegistryState, next int64) map[string]wire.ReaderEntry {
	all := map[string]wire.ReaderEntry{}
	certificates := accept.ReaderCertificates(in.Site)
	for name, was := range stands.Readers {
		is := was
		if ref := in.Site.Spec.ReadersSecretRef; ref != nil && len(was.Tokens) > 0 {
			is.Tokens = nil
			if secret := in.Secrets[ref.Name]; secret != nil && !accept.WrittenByOperator(secret) {
				is.Tokens = accept.HeldTokens(was.Tokens, accept.TokensOf(secret, name))
			}
		}
		if len(in.Site.Spec.Readers) > 0 {
			is.CertificateNames = slices.DeleteFunc(slices.Clone(was.CertificateNames), func(n string) bool { return !slices.Contains(certificates[name], n) })
		}
		if was.Reader == "" || len(is.Tokens)+len(is.CertificateNames) == 0 && is.Pulls == nil {
			continue // the reader has no access, and nothing waits for it
		}
		if !slices.Equal(was.CertificateNames, is.CertificateNames) || !slices.Equal(was.Tokens, is.Tokens) {
			is.Revision = next
		} else {
			is = was
		}
		all[name] = is
	}
	return all
}

// unreadable returns whether an object of the registry, or the Site itself, cannot be decoded: its entry in the registry stays. Objects
// that are deleted are not there, and their entries go.
func (in Input) unreadable(o metav1.Object) bool {
	return finding.Unreadable(o) != "" || in.Site != nil && finding.Unreadable(in.Site) != ""
}
