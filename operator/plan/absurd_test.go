// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/internal/schematest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

var (
	combinations = flag.Int("combinations", 30, "how many random objects of each kind TestAbsurdPlans makes")
	seed         = flag.Uint64("seed", 1, "what its random choices begin with")
)

// TestAbsurdPlans: everything that the API server accepts can be planned, however absurd: for each kind with a CRD, objects with values at
// and beyond each bound, with unintended values of each field, and with many of these at once, unions of two members among them. Each is
// planned in the surroundings of a golden test. No planner panics; each condition that is False says what is wrong, and where; and the API
// server accepts the status.
func TestAbsurdPlans(t *testing.T) {
	server := testenv.Kubernetes(t)
	cfg := rest.CopyConfig(server.Config)
	cfg.APIPath, cfg.GroupVersion = "/apis", &v1alpha1.GroupVersion
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	worlds := goldenWorlds(t)
	files := must(fs.Glob(crds.Files, "*.yaml"))(t)
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(must(crds.Files.ReadFile(file))(t), crd); err != nil {
			t.Fatal(err)
		}
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) { absurdPlansOf(t, c, crd, worlds) })
	}
}

func absurdPlansOf(t *testing.T, c *rest.RESTClient, crd *apiextensionsv1.CustomResourceDefinition, worlds []world) {
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	a := &absurdity{t: t, rest: c, kind: crd.Spec.Names.Kind, plural: crd.Spec.Names.Plural,
		leaves: schematest.Leaves(spec, schematest.Path{"spec"}), random: rand.New(rand.NewPCG(*seed, 0))}
	a.part = fieldNamed(t, reflect.TypeFor[world](), a.plural)
	fieldNamed(t, reflect.TypeFor[planned](), a.plural)
	for _, w := range worlds {
		if all := w.objects(a.part); len(all) > 0 && !slices.ContainsFunc(all, leaves) {
			a.worlds = append(a.worlds, w)
		}
	}
	a.hosts = goodManifests(t, a.kind)
	if len(a.worlds) == 0 || len(a.hosts) == 0 {
		t.Fatalf("there are %d golden tests and %d good manifests with a %s", len(a.worlds), len(a.hosts), a.kind)
	}
	a.subject = a.stored()
	for _, leaf := range a.leaves {
		for _, value := range slices.Concat(schematest.Bounds(leaf.Schema), schematest.Absurd(leaf.Schema)) {
			host := a.hosts[a.random.IntN(len(a.hosts))]
			for _, h := range a.hosts {
				if schematest.Has(h, leaf.Path) {
					host = h
				}
			}
			object := copied(host)
			if schematest.Set(object, leaf.Path, value) {
				a.try(object)
			}
		}
	}
	for range *combinations {
		a.try(a.combined())
	}
	if a.taken == 0 {
		t.Error("nothing was taken: this test shows nothing")
	}
	t.Logf("%d of %d objects were taken, and planned", a.taken, a.tried)
}

// leaves says whether an object is being deleted: whatever it declares, nothing is planned for it.
func leaves(object map[string]any) bool {
	_, is := object["metadata"].(map[string]any)["deletionTimestamp"]
	return is
}

// absurdity makes objects of one kind.
type absurdity struct {
	t            *testing.T
	rest         *rest.RESTClient
	kind, plural string
	// part of the world that holds the kind.
	part   string
	leaves []schematest.Leaf
	hosts  []map[string]any
	worlds []world
	random *rand.Rand
	// subject is an object that the API server has: statuses are tried on it.
	subject      string
	tried, taken int
}

// combined is a good object in which some fields have other values, some are removed, and some are copied from other objects.
func (a *absurdity) combined() map[string]any {
	object := copied(a.hosts[a.random.IntN(len(a.hosts))])
	for range 1 + a.random.IntN(5) {
		leaf := a.leaves[a.random.IntN(len(a.leaves))]
		switch a.random.IntN(4) {
		case 0: // a whole branch of another object's
			other := a.hosts[a.random.IntN(len(a.hosts))]["spec"].(map[string]any)
			names := slices.Sorted(maps.Keys(other))
			name := names[a.random.IntN(len(names))]
			object["spec"].(map[string]any)[name] = other[name]
			object = copied(object)
		case 1:
			spec := object["spec"].(map[string]any)
			names := slices.Sorted(maps.Keys(spec))
			delete(spec, names[a.random.IntN(len(names))])
			if len(spec) == 0 {
				return object
			}
		default:
			values := slices.Concat(schematest.Plausible(leaf.Schema), schematest.Bounds(leaf.Schema), schematest.Absurd(leaf.Schema))
			if len(values) > 0 {
				schematest.Set(object, leaf.Path, values[a.random.IntN(len(values))])
			}
		}
	}
	return object
}

// try plans an object where the API server takes it.
func (a *absurdity) try(object map[string]any) {
	a.tried++
	object["metadata"] = map[string]any{"generateName": "absurd-"}
	answer, err := a.rest.Post().Namespace("default").Resource(a.plural).Param("dryRun", "All").
		SetHeader("Content-Type", "application/json").Body(encoded(object)).DoRaw(context.Background())
	if err != nil {
		return
	}
	a.taken++
	var is map[string]any
	if err := json.Unmarshal(answer, &is); err != nil {
		a.t.Fatal(err)
	}
	w := a.worlds[a.random.IntN(len(a.worlds))]
	status, name := a.plan(w, is["spec"].(map[string]any))
	if status == nil {
		return
	}
	a.explains(status, name, object, string(encoded(w)))
	patch := encoded([]any{map[string]any{"op": "add", "path": "/status", "value": status}})
	if _, err := a.rest.Patch("application/json-patch+json").Namespace("default").Resource(a.plural).Name(a.subject).SubResource("status").
		Param("dryRun", "All").Body(patch).DoRaw(context.Background()); err != nil {
		a.t.Errorf("the API server refuses the status that is planned for %s: %v", abridged(object), err)
	}
}

// plan plans a world in which an object has this spec, except for its references, and returns its status.
func (a *absurdity) plan(w world, spec map[string]any) (status map[string]any, name string) {
	w.Show = []string{a.shown()}
	var object map[string]any
	w, object = w.with(a.part, a.random)
	for _, ref := range []string{"siteRef", "feedRef", "gatewayRef"} {
		if was, has := object["spec"].(map[string]any)[ref]; has {
			spec[ref] = was
		} else {
			delete(spec, ref)
		}
	}
	object["spec"] = spec
	name, _ = object["metadata"].(map[string]any)["name"].(string)
	defer func() {
		if problem := recover(); problem != nil {
			a.t.Errorf("a planner panics: %v\n%s\n%s", problem, abridged(object), debug.Stack())
		}
	}()
	var all map[string]map[string]map[string]any
	if err := json.Unmarshal(encoded(w.plan(a.t)), &all); err != nil {
		a.t.Fatal(err)
	}
	if status = all[a.shown()][name]; status == nil {
		a.t.Errorf("nothing is planned for %s", abridged(object))
	}
	return status, name
}

// shown is what the golden files call the part.
func (a *absurdity) shown() string { return fieldNamed(a.t, reflect.TypeFor[planned](), a.plural) }

var namesSomething = regexp.MustCompile(`"[^"]+"|\b(spec|status)\.[a-z]|[a-z0-9]-[a-z0-9]|[A-Z]+_[a-z]|://|[0-9]|\b(pod|stream|instrument|archivist|feed server|StatefulSet|Deployment|durables|JetStream|Site|Feed|pool)`)

// explains checks the messages of a status: a condition that is False states what is wrong, and of which object or field. A message that is
// already in the surroundings is not checked: it comes from other objects, in a golden test's own words.
func (a *absurdity) explains(status map[string]any, name string, object map[string]any, surroundings string) {
	var conditions []metav1.Condition
	if err := json.Unmarshal(encoded(status["conditions"]), &conditions); err != nil || len(conditions) == 0 {
		a.t.Errorf("the status of %s has the conditions %v: %v", name, conditions, err)
	}
	for _, c := range conditions {
		switch {
		case c.Reason == "":
			a.t.Errorf("%s of %s has no reason", c.Type, abridged(object))
		case c.Status != metav1.ConditionFalse, strings.Contains(surroundings, string(encoded(c.Message))):
		case !namesSomething.MatchString(c.Message):
			a.t.Errorf("%s is False, with reason %s, and its message names nothing: %q, of %s", c.Type, c.Reason, c.Message, abridged(object))
		case c.Type == v1alpha1.ConditionAccepted && !strings.Contains(c.Message, `"`) && !strings.Contains(c.Message, "spec.") && !strings.Contains(c.Message, "stream "):
			a.t.Errorf("it is not accepted, with reason %s, and the message names no object and no field: %q", c.Reason, c.Message)
		}
	}
}

// stored makes an object that stays.
func (a *absurdity) stored() string {
	object := copied(a.hosts[0])
	object["metadata"] = map[string]any{"generateName": "subject-"}
	answer, err := a.rest.Post().Namespace("default").Resource(a.plural).SetHeader("Content-Type", "application/json").Body(encoded(object)).DoRaw(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	var made metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &made); err != nil {
		a.t.Fatal(err)
	}
	return made.Name
}

// goldenWorlds are the inputs of the golden tests.
func goldenWorlds(t *testing.T) (all []world) {
	t.Helper()
	for _, input := range must(filepath.Glob("testdata/*.in.yaml"))(t) {
		var w world
		if err := yaml.UnmarshalStrict(must(os.ReadFile(input))(t), &w); err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

// goodManifests are the objects of a kind that the tests of the CRDs have.
func goodManifests(t *testing.T, kind string) (all []map[string]any) {
	t.Helper()
	for _, path := range must(filepath.Glob("../api/v1alpha1/testdata/good/*.yaml"))(t) {
		for _, part := range strings.Split(string(must(os.ReadFile(path))(t)), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(part), &object); err != nil {
				t.Fatal(err)
			}
			if object["kind"] == kind {
				all = append(all, object)
			}
		}
	}
	return all
}

// fieldNamed is the name in YAML of the field that holds a kind, such as ingestGateways for ingestgateways.
func fieldNamed(t *testing.T, of reflect.Type, plural string) string {
	t.Helper()
	for _, field := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); strings.EqualFold(name, plural) {
			return name
		}
	}
	t.Fatalf("the golden tests know no %s in their %s: let them plan the kind", plural, of.Name())
	return ""
}

// objects are those of one part of a world.
func (w *world) objects(part string) []map[string]any {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[world]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == part {
			return reflect.ValueOf(w).Elem().FieldByIndex(field.Index).Interface().([]map[string]any)
		}
	}
	return nil
}

// with is a copy of the world, and one of its objects of a part.
func (w world) with(part string, random *rand.Rand) (world, map[string]any) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[world]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != part {
			continue
		}
		value := reflect.ValueOf(&w).Elem().FieldByIndex(field.Index)
		objects := slices.Clone(value.Interface().([]map[string]any))
		i := random.IntN(len(objects))
		objects[i] = copied(objects[i])
		value.Set(reflect.ValueOf(objects))
		return w, objects[i]
	}
	return w, nil
}

func copied(object map[string]any) (c map[string]any) {
	decoder := json.NewDecoder(bytes.NewReader(encoded(object)))
	decoder.UseNumber()
	if err := decoder.Decode(&c); err != nil {
		panic(err)
	}
	return c
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func abridged(object map[string]any) string {
	data := encoded(object)
	if len(data) > 2000 {
		return fmt.Sprintf("%s… (%d bytes)", data[:2000], len(data))
	}
	return string(data)
}
