// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// UnreadableObject names one.
type UnreadableObject struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Problem string `json:"problem"`
}

// UnreadableObjects are those of a Site, by kind and name: itself, its pools, FeedServers,
// Instruments, Feeds, their FeedConsumers, and MirrorPartners.
func UnreadableObjects(in RegistryInput, gateways []v1alpha1.IngestGateway, servers []v1alpha1.FeedServer) []UnreadableObject {
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
		if feed := in.Consumers[i].Spec.FeedRef.Name; feed == "" || feedNamed(in.Feeds, feed) != nil {
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

// maxUnreadableNamed is how many objects a condition's message names.
const maxUnreadableNamed = 10

// unreadable is what the Site's condition says of them, and false where there are none.
func (v SiteView) unreadable() (finding.Finding, bool) {
	if len(v.Unreadable) == 0 {
		return finding.Finding{}, false
	}
	var each []string
	for _, o := range v.Unreadable[:min(len(v.Unreadable), maxUnreadableNamed)] {
		each = append(each, fmt.Sprintf("%s %q (%.200s)", o.Kind, o.Name, o.Problem))
	}
	if more := len(v.Unreadable) - len(each); more > 0 {
		each = append(each, fmt.Sprintf("%d more", more))
	}
	return finding.Good(v1alpha1.ReasonUnreadable, fmt.Sprintf(
		"the operator cannot read %s: what was made for them stays as it is, and their changes wait; correct them, or run a version of the operator that reads them",
		strings.Join(each, ", "))), true
}

// unreadable says whether an object of the registry, or the Site itself, cannot be decoded:
// what stands of it in the registry stays. Objects that are deleted are not there, and
// their entries go.
func (in RegistryInput) unreadable(o metav1.Object) bool {
	return finding.Unreadable(o) != "" || in.Site != nil && finding.Unreadable(in.Site) != ""
}

// keptInstrument is what becomes of the entry of an Instrument that cannot be decoded: it
// stays, but for a legal hold that begins, and for tokens that are in none of its Secrets
// any more. Where its listeners cannot be read nobody knows these Secrets.
func (in RegistryInput) keptInstrument(inst *v1alpha1.Instrument, was wire.InstrumentEntry, next int64) wire.InstrumentEntry {
	is := was
	if len(inst.Spec.Listeners) > 0 {
		is.Listeners = heldByListeners(inst, was.Listeners, in.Secrets)
	}
	is.LegalHold = was.LegalHold || underHold(in.Site, inst)
	if !sameEntry(was, is) {
		is.Revision = next
	}
	return is
}

// keptConsumer is what becomes of the entry of a FeedConsumer that cannot be decoded: it
// stays, but for a token that is not in its Secret any more.
func (in RegistryInput) keptConsumer(c *v1alpha1.FeedConsumer, was wire.ConsumerEntry, next int64) wire.ConsumerEntry {
	var tokens []string
	if secret := in.Secrets[ConsumerSecretName(c)]; secret != nil && metav1.IsControlledBy(secret, c) {
		tokens = tokensOf(secret, KeyToken)
	}
	is := was
	if is.Tokens = held(was.Tokens, tokens); !reflect.DeepEqual(was, is) {
		is.Revision = next
	}
	return is
}

// keptReaders is what becomes of the readers of a Site that cannot be decoded: they stay,
// but for tokens and names of certificates that are not in the Secret, or the Site, any more.
// Where these cannot be read nobody knows.
func (in RegistryInput) keptReaders(stands RegistryState, next int64) map[string]wire.ReaderEntry {
	all := map[string]wire.ReaderEntry{}
	certificates := readerCertificates(in.Site)
	for name, was := range stands.Readers {
		is := was
		if ref := in.Site.Spec.ReadersSecretRef; ref != nil && len(was.Tokens) > 0 {
			is.Tokens = nil
			if secret := in.Secrets[ref.Name]; secret != nil && !writtenByOperator(secret) {
				is.Tokens = heldTokens(was.Tokens, tokensOf(secret, name))
			}
		}
		if len(in.Site.Spec.Readers) > 0 {
			is.CertificateNames = slices.DeleteFunc(slices.Clone(was.CertificateNames), func(n string) bool { return !slices.Contains(certificates[name], n) })
		}
		if was.Reader == "" || len(is.Tokens)+len(is.CertificateNames) == 0 && is.Pulls == nil {
			continue // nothing lets the reader in, and nothing waits for it
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

// UnreadableFlow is the DataFlowing of an Instrument that cannot be decoded: nobody knows
// what is due of it.
func UnreadableFlow(inst *v1alpha1.Instrument) finding.Finding {
	return finding.Unknown(v1alpha1.ReasonNotAccepted, "the operator cannot read the Instrument: "+finding.Unreadable(inst))
}

func instrumentIsUnreadable(in application) (finding.Finding, bool) {
	problem := finding.Unreadable(in.instrument)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the Instrument, and leaves its registry entry as it is: "+problem), problem != ""
}

func gatewayIsUnreadable(in application) (finding.Finding, bool) {
	if in.gateway == nil || finding.Unreadable(in.gateway) == "" {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonUnreadable, fmt.Sprintf(
		"the operator cannot read IngestGateway %q, and leaves what the pool does as it is: %s", in.gateway.Name, finding.Unreadable(in.gateway))), true
}

func feedIsUnreadable(in feedApplication) (finding.Finding, bool) {
	problem := finding.Unreadable(in.feed)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the Feed, and leaves its registry entry as it is: "+problem), problem != ""
}

func consumerIsUnreadable(in consumerApplication) (finding.Finding, bool) {
	problem := finding.Unreadable(in.consumer)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the FeedConsumer, and leaves its registry entry as it is: "+problem), problem != ""
}
