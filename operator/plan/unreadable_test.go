// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

const (
	staying = "a-token-that-is-still-in-its-secret"
	removed = "a-token-that-was-taken-from-it"
)

func hashed(tokens ...string) []wire.TokenHash {
	var all []wire.TokenHash
	for i, token := range tokens {
		all = append(all, wire.HashToken([]byte{byte(i)}, token))
	}
	return all
}

// takes returns those of the two tokens that a list of hashes accepts.
func takes(hashes []wire.TokenHash) []string {
	var all []string
	for _, token := range []string{staying, removed} {
		if slices.ContainsFunc(hashes, func(h wire.TokenHash) bool { return h.Matches(token) }) {
			all = append(all, token)
		}
	}
	return all
}

func unreadableMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{v1alpha1.AnnotationUnreadable: "a duration is too long"}}
}

// unreadableInput has objects that cannot be read, whose tokens are in the registry, and the Secrets as they are now: one of two tokens is
// gone from each.
func unreadableInput() (entries.Input, observed.RegistryState) {
	listener := func(ref *v1alpha1.SecretKeyReference) v1alpha1.Listener {
		return v1alpha1.Listener{Name: ref.Name, Protocol: v1alpha1.ListenerHTTP, TokenSecretKeyRef: ref, Port: 30110}
	}
	in := entries.Input{Site: &v1alpha1.Site{}, Secrets: workload.Secrets{
		"tokens": {Data: map[string][]byte{"camera": []byte(staying)}, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{accept.LabelTokens: "true"}}}}}
	camera := v1alpha1.Instrument{ObjectMeta: unreadableMeta("camera")}
	camera.Spec.Listeners = []v1alpha1.Listener{listener(&v1alpha1.SecretKeyReference{Name: "tokens", Key: "camera"}), listener(&v1alpha1.SecretKeyReference{Name: "gone", Key: "camera"})}
	// The listeners of the second cannot be read, either.
	in.Instruments = []v1alpha1.Instrument{camera, {ObjectMeta: unreadableMeta("second")}}
	stands := observed.RegistryState{Entries: map[string]wire.InstrumentEntry{}, Consumers: map[string]wire.ConsumerEntry{}, Readers: map[string]wire.ReaderEntry{}}
	for _, name := range []string{"camera", "second", "deleted"} {
		stands.Entries[name] = wire.InstrumentEntry{Instrument: name, Revision: 7, Listeners: []wire.ListenerEntry{
			{Protocol: "HTTP", Port: 30110, Tokens: hashed(staying, removed)}, {Protocol: "HTTP", Port: 30111, Tokens: hashed(removed)}}}
	}
	for _, name := range []string{"kept", "elsewhere", "gone", "deleted"} {
		stands.Consumers[name] = wire.ConsumerEntry{Consumer: name, Revision: 7, Tokens: hashed(staying)}
		if name == "deleted" {
			continue
		}
		c := v1alpha1.FeedConsumer{ObjectMeta: unreadableMeta(name)}
		secret := name + "-consumer"
		if name == "elsewhere" { // its spec cannot be read, feedRef and secretName not either
			secret = "own-name"
			c.Status.SecretName = secret
		}
		if name != "gone" {
			yes := true
			in.Secrets[secret] = &corev1.Secret{Data: map[string][]byte{bus.KeyToken: []byte(staying)},
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: c.UID, Controller: &yes}}}}
		}
		in.Consumers = append(in.Consumers, c)
	}
	return in, stands
}

// TestTokensOfUnreadableObjects: the tokens of an object that cannot be read stay as they were, except those that were taken out of their
// Secret, and those of an object that is deleted.
func TestTokensOfUnreadableObjects(t *testing.T) {
	in, stands := unreadableInput()
	checkRevoked(t, entries.Plan(in, stands, &wire.RegistryComplete{Revision: 7, Count: 3, Consumers: 4}, 7))
}

func checkRevoked(t *testing.T, c entries.Change) {
	t.Helper()
	if len(c.Put) != 1 || c.Put[0].Instrument != "camera" || c.Put[0].Revision != 8 {
		t.Fatalf("instruments are written anew: %+v", c.Put)
	}
	listeners := c.Put[0].Listeners
	if diff := cmp.Diff([]string{staying}, takes(listeners[0].Tokens)); diff != "" || len(takes(listeners[1].Tokens)) != 0 || len(listeners[1].Tokens) == 0 {
		t.Errorf("the listeners take %v, and %v of %d", takes(listeners[0].Tokens), takes(listeners[1].Tokens), len(listeners[1].Tokens))
	}
	if len(c.PutConsumers) != 1 || c.PutConsumers[0].Consumer != "gone" || len(takes(c.PutConsumers[0].Tokens)) != 0 || len(c.PutConsumers[0].Tokens) == 0 {
		t.Errorf("consumers are written anew: %+v", c.PutConsumers)
	}
	if diff := cmp.Diff([][]string{{"deleted"}, {"deleted"}}, [][]string{c.Delete, c.DeleteConsumers}); diff != "" {
		t.Errorf("what was deleted stays (-want +got):\n%s", diff)
	}
}

// TestTokensOfAnUnreadableSite: nothing that the Site's registry holds changes, but what is deleted is revoked.
func TestTokensOfAnUnreadableSite(t *testing.T) {
	in, stands := unreadableInput()
	in.Site.ObjectMeta = unreadableMeta("hub")
	for i := range in.Instruments {
		in.Instruments[i].Annotations = nil // these can be read, and wait for the Site
	}
	in.Instruments = append(in.Instruments, v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	in.Verdicts = map[string]accept.Verdict{}
	for _, reader := range []string{"ops", "left", "cert"} {
		stands.Readers[reader] = wire.ReaderEntry{Reader: reader, Tokens: hashed(staying)}
	}
	stands.Readers["cert"] = wire.ReaderEntry{Reader: "cert", CertificateNames: []string{"a.example", "b.example"}}
	complete := &wire.RegistryComplete{Revision: 7, Count: 3, Consumers: 4, Readers: 3}

	// The names of Secrets and readers cannot be read: existing entries stay.
	c := entries.Plan(in, stands, complete, 7)
	checkRevoked(t, c)
	if len(c.PutReaders)+len(c.DeleteReaders) != 0 {
		t.Errorf("readers change: %+v, %v", c.PutReaders, c.DeleteReaders)
	}
	// They can.
	in.Site.Spec.ReadersSecretRef = &v1alpha1.LocalReference{Name: "readers"}
	in.Site.Spec.Readers = []v1alpha1.Reader{{Name: "cert", ClientCertificate: v1alpha1.ClientCertificate{Names: []string{"b.example", "c.example"}}}}
	in.Secrets["readers"] = &corev1.Secret{Data: map[string][]byte{"ops": []byte(staying), "late": []byte(staying)}}
	c = entries.Plan(in, stands, complete, 7)
	if len(c.PutReaders) != 1 || c.PutReaders[0].Reader != "cert" || !slices.Equal(c.PutReaders[0].CertificateNames, []string{"b.example"}) {
		t.Errorf("readers are written anew: %+v", c.PutReaders)
	}
	if !slices.Equal(c.DeleteReaders, []string{"left"}) {
		t.Errorf("readers are deleted: %v", c.DeleteReaders)
	}
}
