// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// writers are the kinds for whose objects the operator writes Secrets.
var writers = []string{"FeedConsumer", "FeedServer", "IngestGateway", "MirrorPartner", "Site"}

// mayBeWritten are all fields that name Secrets, each with the kinds for which the operator may create
// a Secret of that name. A field that is new in the API has its row here.
var mayBeWritten = map[string][]string{
	"FeedServer spec.tls.caSecretRef":                      nil,
	"FeedServer spec.tls.certificateSecretRef":             nil,
	"IngestGateway spec.tls.caSecretRef":                   nil,
	"IngestGateway spec.tls.certificateSecretRef":          nil,
	"Instrument spec.listeners[].tokenSecretKeyRef":        {"FeedServer", "IngestGateway", "MirrorPartner", "Site"},
	"MirrorPartner spec.https.tls.caSecretRef":             nil,
	"MirrorPartner spec.https.tls.certificateSecretRef":    nil,
	"MirrorPartner spec.https.tokenSecretKeyRef":           nil,
	"MirrorPartner spec.rsync.daemon.passwordSecretKeyRef": nil,
	"MirrorPartner spec.rsync.ssh.knownHostsSecretKeyRef":  nil,
	"MirrorPartner spec.rsync.ssh.privateKeySecretKeyRef":  nil,
	"MirrorPartner spec.s3.credentialsSecretRef":           nil,
	"MirrorPartner spec.s3.tls.caSecretRef":                nil,
	"MirrorPartner spec.s3.tls.certificateSecretRef":       nil,
	"Site spec.jetStream.accountKeySecretRef":              nil,
	"Site spec.jetStream.commandAccountKeySecretRef":       nil,
	"Site spec.jetStream.consumerAccountKeySecretRef":      nil,
	"Site spec.jetStream.credentialsSecretRef":             nil,
	"Site spec.jetStream.leafAccountKeySecretRef":          nil,
	"Site spec.jetStream.tls.caSecretRef":                  nil,
	"Site spec.jetStream.tls.certificateSecretRef":         nil,
	"Site spec.objectStore.credentialsSecretRef":           nil,
	"Site spec.objectStore.gatewayCredentialsSecretRef":    nil,
	"Site spec.objectStore.readCredentialsSecretRef":       nil,
	"Site spec.objectStore.tls.caSecretRef":                nil,
	"Site spec.objectStore.tls.certificateSecretRef":       nil,
	"Site spec.readersSecretRef":                           nil,
	"Site spec.upstream.credentialsSecretRef":              {"Site"},
	"Site spec.upstream.tls.caSecretRef":                   nil,
	"Site spec.upstream.tls.certificateSecretRef":          nil,
}

// TestSecretReferences: each field of the API that names a Secret is known as a reference, and keeps the operator from creating a Secret of
// that name, except those that the table exempts.
func TestSecretReferences(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range []metav1.Object{
		&v1alpha1.Site{}, &v1alpha1.IngestGateway{}, &v1alpha1.FeedServer{}, &v1alpha1.Instrument{}, &v1alpha1.Feed{}, &v1alpha1.FeedConsumer{}, &v1alpha1.MirrorPartner{},
	} {
		kind := reflect.TypeOf(o).Elem().Name()
		secretFields(reflect.TypeOf(o).Elem().Field(2).Type, "spec", nil, func(path string, index []int) {
			name := kind + " " + path
			if name == "FeedConsumer spec.secretName" {
				return // the operator writes it, so it is no reference
			}
			seen[name] = true
			except, has := mayBeWritten[name]
			if !has {
				t.Errorf("%s has no row in mayBeWritten", name)
				return
			}
			object := reflect.New(reflect.TypeOf(o).Elem())
			setName(object.Elem().Field(2), index)
			references := slices.DeleteFunc(accept.SecretReferences(object.Interface().(metav1.Object)), func(ref accept.SecretReference) bool { return ref.Secret != "theirs" })
			if len(references) == 0 {
				t.Errorf("SecretReferences does not know %s", name)
			}
			for _, writer := range writers {
				if f, refused := accept.SecretReferred(writer, "theirs", references); refused == slices.Contains(except, writer) {
					t.Errorf("a Secret for a %s of the name in %s: %+v", writer, name, f)
				}
			}
		})
	}
	for name := range mayBeWritten {
		if !seen[name] {
			t.Errorf("the API has no field %s", name)
		}
	}
}

// secretFields calls found for each field below a type whose name refers to a Secret.
func secretFields(of reflect.Type, path string, index []int, found func(path string, index []int)) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		if of.Kind() != reflect.Pointer {
			path += "[]"
		}
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[v1alpha1.Site]().PkgPath() {
		return
	}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		at := append(slices.Clone(index), i)
		if strings.Contains(strings.ToLower(name), "secret") {
			found(path+"."+name, at)
			continue
		}
		secretFields(of.Field(i).Type, path+"."+name, at, found)
	}
}

// setName makes all that is on the way to a field, and has the field name the Secret "theirs".
func setName(v reflect.Value, index []int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		setName(v.Elem(), index)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setName(v.Index(0), index)
	case reflect.Struct:
		if len(index) > 0 {
			setName(v.Field(index[0]), index[1:])
			return
		}
		v.FieldByName("Name").SetString("theirs")
	}
}

// written are all Secrets that the operator writes.
func written(t *testing.T) map[string]*corev1.Secret {
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: "field", UID: "s-1"}, Spec: v1alpha1.SiteSpec{Code: "hub"}}
	pool := workload.Pool{Site: site, Gateway: &v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "field", UID: "g-1"}}}
	consumer := &v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: "viewer", Namespace: "field", UID: "c-1"}}
	token := []byte("0123456789abcdef0123456789abcdef")
	all := map[string]*coreac.SecretApplyConfiguration{
		"pool.go":           pool.CredentialsSecret(token),
		"peers.go":          pool.CertificateSecret("pool-peers", map[string][]byte{"token": token}),
		"leaf.go":           bus.LeafSecret(site, v1alpha1.Leaf{Code: "north"}, token, ""),
		"siteprogram.go":    workload.FeedServerOf(site, &v1alpha1.FeedServer{ObjectMeta: metav1.ObjectMeta{Name: "feed", Namespace: "field", UID: "f-1"}}).CredentialsSecret(token),
		"consumersecret.go": bus.ConsumerAccess{Site: site, Consumer: consumer}.Secret(map[string][]byte{bus.KeyToken: token, bus.KeyURL: []byte("ws://feed.example/feeds/all/ws?consumer=viewer")}, ""),
	}
	secrets := map[string]*corev1.Secret{}
	for name, ac := range all {
		text, err := json.Marshal(ac)
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = &corev1.Secret{}
		if err := json.Unmarshal(text, secrets[name]); err != nil {
			t.Fatal(err)
		}
	}
	return secrets
}

// TestWrittenSecretsHoldNoTokens: no value of a Secret that the operator writes is taken as the token of a
// reader or a sender, even with the label of Secrets with tokens, and with one of the two marks alone by
// which the operator's Secrets are known.
func TestWrittenSecretsHoldNoTokens(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"*.go", "*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, files...)
	}
	makers := 0
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			makers += strings.Count(string(text), "coreac.Secret(")
		}
	}
	all := written(t)
	if makers != len(all) {
		t.Errorf("the planners make %d Secrets, and the test knows %d", makers, len(all))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for what, strip := range map[string]func(*corev1.Secret){
			"as it is": func(*corev1.Secret) {}, "without our label": func(s *corev1.Secret) { delete(s.Labels, workload.LabelManagedBy) },
			"without its owner": func(s *corev1.Secret) { s.OwnerReferences = nil },
		} {
			secret := all[name].DeepCopy()
			if accept.HoldsTokens(secret) {
				t.Errorf("%s: a Secret without the label holds tokens", name)
			}
			secret.Labels[accept.LabelTokens] = "true"
			strip(secret)
			in := entries.Input{
				Site:    &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Code: "hub", ReadersSecretRef: &v1alpha1.LocalReference{Name: "readers"}}},
				Secrets: workload.Secrets{"readers": secret},
			}
			if readers := in.ReaderEntries(observed.RegistryState{}, 1); len(readers) > 0 {
				t.Errorf("%s, %s: readers %v", name, what, readers)
			}
			if f, found := accept.ReadersProblem(in.Site, in.Secrets); !found || f.Reason != v1alpha1.ReasonConflict {
				t.Errorf("%s, %s: the Site says %+v", name, what, f)
			}
			if f, found := accept.NotTokens(secret, "readers", "spec.listeners[name=http].tokenSecretKeyRef"); !found {
				t.Errorf("%s, %s: an Instrument's listener takes its tokens: %+v", name, what, f)
			}
		}
	}
}
