// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/internal/schematest"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// schemas returns the CRDs by kind.
func schemas(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		data, err := crds.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			t.Fatal(err)
		}
		all[crd.Spec.Names.Kind] = crd
	}
	return all
}

// laboratory writes objects of one kind as JSON, so that no client looks at a value
// before the API server does.
type laboratory struct {
	t         *testing.T
	rest      *rest.RESTClient
	namespace string
	kind      string
	plural    string
	schema    apiextensionsv1.JSONSchemaProps
	hosts     []map[string]any
	accepted  int
}

func newLaboratory(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *laboratory {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "absurd-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(apiConfig)
	cfg.APIPath, cfg.GroupVersion = "/apis", &v1alpha1.GroupVersion
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	cfg.QPS = -1 // without a limit
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &laboratory{t: t, rest: c, namespace: namespace.Name, kind: crd.Spec.Names.Kind, plural: crd.Spec.Names.Plural,
		schema: *crd.Spec.Versions[0].Schema.OpenAPIV3Schema}
	for _, m := range read(t, "good") {
		for _, u := range m.objects {
			if u.GetKind() == l.kind {
				u.Object["metadata"] = map[string]any{"generateName": "absurd-"}
				l.hosts = append(l.hosts, u.Object)
			}
		}
	}
	return l
}

// create says what the API server makes of an object.
func (l *laboratory) create(object map[string]any, dryRun bool) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	request := l.rest.Post().Namespace(l.namespace).Resource(l.plural).SetHeader("Content-Type", "application/json").Body(data)
	if dryRun {
		request = request.Param("dryRun", "All")
	}
	return request.DoRaw(context.Background())
}

// patchStatus replaces the status of an object.
func (l *laboratory) patchStatus(name string, status any) ([]byte, error) {
	data, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return nil, err
	}
	return l.rest.Patch(types.JSONPatchType).Namespace(l.namespace).Resource(l.plural).Name(name).SubResource("status").Body(data).DoRaw(context.Background())
}

// decodes reads an answer as the operator would.
func (l *laboratory) decodes(answer []byte, at schematest.Path, value any) {
	l.accepted++
	object, err := v1alpha1Scheme().New(v1alpha1.GroupVersion.WithKind(l.kind))
	if err != nil {
		l.t.Fatal(err)
	}
	if err := json.Unmarshal(answer, object); err != nil {
		l.t.Errorf("%s %s: the API server takes %s, and nobody can read it: %v", l.kind, at, abridged(value), err)
	}
}

func abridged(value any) string {
	data, _ := json.Marshal(value)
	if len(data) > 80 {
		return fmt.Sprintf("%s… (%d bytes)", data[:80], len(data))
	}
	return string(data)
}

var v1alpha1Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
})

// list lists the kind as the operator does.
func (l *laboratory) list() {
	list, err := v1alpha1Scheme().New(v1alpha1.GroupVersion.WithKind(l.kind + "List"))
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := client.New(apiConfig, client.Options{Scheme: v1alpha1Scheme()})
	if err != nil {
		l.t.Fatal(err)
	}
	if err := c.List(l.t.Context(), list.(client.ObjectList), client.InNamespace(l.namespace)); err != nil {
		l.t.Errorf("list %s: %v", l.plural, err)
	}
}

// TestAbsurdValues gives every field of every kind values that no one would mean. What the
// API server takes must be readable: one object that is not keeps all of its kind from
// being listed.
func TestAbsurdValues(t *testing.T) {
	for kind, crd := range schemas(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLaboratory(t, crd)
			for _, leaf := range schematest.Leaves(l.schema.Properties["spec"], schematest.Path{"spec"}) {
				l.spec(leaf)
			}
			l.status()
			if l.accepted == 0 {
				t.Error("nothing was taken: this test shows nothing")
			}
			l.list()
			t.Logf("%d values were taken", l.accepted)
		})
	}
}

// spec tries the absurd values of a field of the spec, in a good manifest that has it.
func (l *laboratory) spec(leaf schematest.Leaf) {
	host := l.host(leaf)
	if host == nil {
		l.t.Errorf("%s %s: no manifest in %s has it", l.kind, leaf.Path, filepath.Join("testdata", "good"))
		return
	}
	for _, value := range schematest.Absurd(leaf.Schema) {
		object := clone(host)
		schematest.Set(object, leaf.Path, value)
		if answer, err := l.create(object, false); err == nil {
			l.decodes(answer, leaf.Path, value)
		}
	}
}

// host returns a good object in which the field has a value.
func (l *laboratory) host(leaf schematest.Leaf) map[string]any {
	for _, host := range l.hosts {
		if schematest.Has(host, leaf.Path) {
			return host
		}
	}
	for _, value := range schematest.Plausible(leaf.Schema) {
		for _, host := range l.hosts {
			object := clone(host)
			if !schematest.Set(object, leaf.Path, value) {
				continue
			}
			if _, err := l.create(object, true); err == nil {
				return object
			}
		}
	}
	return nil
}

// status tries those of the fields of the status.
func (l *laboratory) status() {
	answer, err := l.create(l.hosts[0], false)
	if err != nil {
		l.t.Fatal(err)
	}
	var made metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &made); err != nil {
		l.t.Fatal(err)
	}
	schema := l.schema.Properties["status"]
	for _, leaf := range schematest.Leaves(schema, schematest.Path{"status"}) {
		if strings.HasSuffix(leaf.Path.String(), "conditions[].lastTransitionTime") {
			continue // metav1.Condition is not ours to bound; the operator goes on without what it cannot read
		}
		try := func(value any) bool {
			object := map[string]any{}
			schematest.Fill(object, map[string]apiextensionsv1.JSONSchemaProps{"status": schema}, leaf.Path, value)
			answer, err := l.patchStatus(made.Name, object["status"])
			if err == nil {
				l.decodes(answer, leaf.Path, value)
			}
			return err == nil
		}
		taken := slices.ContainsFunc(schematest.Plausible(leaf.Schema), try)
		for _, value := range schematest.Absurd(leaf.Schema) {
			taken = try(value) || taken
		}
		if !taken {
			l.t.Errorf("%s %s: no value is taken: this test shows nothing", l.kind, leaf.Path)
		}
	}
}

func clone(o map[string]any) map[string]any {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var c map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&c); err != nil {
		panic(err)
	}
	return c
}
