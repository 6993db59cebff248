// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// TestObjectsOfBefore: objects that were stored under earlier CRDs and cannot be read under the current ones do not affect anything else
// when an operator starts. It serves the objects of the current shape in the same namespace and in others, reports each unreadable object
// by name, derives nothing from what is left of it and writes nothing into it. Objects that are replaced in the current shape are served.
func TestObjectsOfBefore(t *testing.T) {
	t.Parallel()
	definitions := definitionsOfNow(t)
	api := testenv.KubernetesWith(t, takingAnything(definitions))
	minio := testenv.SharedMinIO(t, testenv.MinIOOptions{TLS: true})
	w, other := newWorldAt(t, api, minio), newWorldAt(t, api, minio)
	w.code, other.code = w.namespace, other.namespace
	w.neighbours = []*world{other}
	old := slices.Concat(w.store("instruments.yaml"), other.store("site-of-feed-servers.yaml"))
	if _, err := envtest.InstallCRDs(api.Config, envtest.CRDInstallOptions{CRDs: definitions}); err != nil {
		t.Fatal(err)
	}
	w.awaitDropped(old)
	versions := versionsOf(t, old)

	writes := &writesTo{}
	w.between = writes.through
	w.start()
	w.serveNow("today")
	w.awaitNamed(old)
	w.awaits("Site", "hub", "ObjectsUnreadable", "True/Unreadable", `Instrument "riometer"`, "spec.listeners", `Instrument "keogram"`, "legalHold")

	w.stop()
	w.start() // one that starts again finds the same
	w.serveNow("tomorrow")
	w.awaitNamed(old)
	other.runsNothing()
	if is := versionsOf(t, old); !slices.Equal(is, versions) {
		t.Errorf("objects of before were written: their versions were %v and are %v", versions, is)
	}
	if all := writes.of(old); len(all) > 0 {
		t.Errorf("the operator tried to write objects of before: %q", all)
	}

	w.anew("instruments.yaml")
	other.anew("site-of-feed-servers.yaml")
	w.awaitsServed()
	other.awaits("Site", "hub", "Ready", "True/Ready")
	w.awaitNamed(nil)
}

// definitionsOfNow are the CRDs of this version.
func definitionsOfNow(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	folder, err := testenv.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	options := envtest.CRDInstallOptions{Paths: []string{filepath.Join(folder, "crds")}, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		t.Fatal(err)
	}
	return options.CRDs
}

// takingAnything returns CRDs that accept every object, in place of the CRDs of all earlier versions.
func takingAnything(now []*apiextensionsv1.CustomResourceDefinition) (before []*apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range now {
		crd = crd.DeepCopy()
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}
			v.SelectableFields, v.AdditionalPrinterColumns = nil, nil
		}
		before = append(before, crd)
	}
	return before
}

// stored is an object of before, and its world.
type stored struct {
	*world
	*unstructured.Unstructured
}

// read returns the object as the API server has it now.
func (s stored) read() *unstructured.Unstructured {
	s.t.Helper()
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(s.GroupVersionKind())
	if err := s.world.Get(s.t.Context(), client.ObjectKeyFromObject(s.Unstructured), is); err != nil {
		s.t.Fatal(err)
	}
	return is
}

// manifests are those of a file in testdata, for this world.
func (w *world) manifests(folder, file string) (all []*unstructured.Unstructured) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", folder, file))
	if err != nil {
		w.t.Fatal(err)
	}
	first, _, _ := w.ports()
	values := map[string]string{"CODE": w.code, "STORE": w.minio.URL(), "BUCKET": w.bucket, "SERVERS": w.nats.URL(),
		"RIOMETER": strconv.Itoa(first + 1), "KEOGRAM": strconv.Itoa(first + 2)}
	for _, manifest := range strings.Split(os.Expand(string(text), func(name string) string { return values[name] }), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest), &u.Object); err != nil {
			w.t.Fatalf("%s: %v", file, err)
		}
		u.SetNamespace(w.namespace)
		all = append(all, u)
	}
	return all
}

func (w *world) applyServerSide(u *unstructured.Unstructured) error {
	return w.Client.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("kubectl"), client.ForceOwnership)
}

// replace has kubectl replace an object.
func (w *world) replace(u *unstructured.Unstructured) error {
	w.t.Helper()
	manifest, err := yaml.Marshal(u.Object)
	if err != nil {
		w.t.Fatal(err)
	}
	kubeconfig := w.api.Kubeconfig(w.t, "people-"+w.namespace, "system:masters")
	cmd := exec.CommandContext(w.t.Context(), testenv.Path(w.t, "kubectl"), "--kubeconfig", kubeconfig, "--cache-dir", w.t.TempDir(), "replace", "-f", "-")
	cmd.Stdin = bytes.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl replace: %w: %s", err, out)
	}
	return nil
}

// store stores the objects of a file, with the statuses that an operator of before wrote.
func (w *world) store(file string) (all []stored) {
	w.t.Helper()
	for _, u := range w.manifests("before", file) {
		status := u.DeepCopy()
		delete(u.Object, "status")
		delete(status.Object, "spec")
		if err := w.applyServerSide(u); err != nil {
			w.t.Fatal(err)
		}
		if status.Object["status"] != nil {
			if err := w.Status().Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(status), client.FieldOwner(workload.FieldOwner)); err != nil {
				w.t.Fatal(err)
			}
		}
		all = append(all, stored{w, u})
	}
	return all
}

// awaitDropped waits until the API server uses the current CRDs for all kinds: it fills in their defaults.
func (w *world) awaitDropped(old []stored) {
	w.t.Helper()
	filledIn := map[string][]string{"Site": {"spec", "jetStream", "replicas"}, "Instrument": {"spec", "state"}}
	eventually(w.t, "the API server goes by the CRDs of now", func() error {
		for _, o := range old {
			if _, has, _ := unstructured.NestedFieldNoCopy(o.read().Object, filledIn[o.GetKind()]...); !has {
				return fmt.Errorf("%s %s has no default yet", o.GetKind(), o.GetName())
			}
		}
		return nil
	})
}

func versionsOf(t *testing.T, old []stored) (all []string) {
	t.Helper()
	for _, o := range old {
		all = append(all, o.read().GetResourceVersion())
	}
	return all
}

// serveNow applies the objects of a current Site, and waits until all are served.
func (w *world) serveNow(instrument string) {
	w.t.Helper()
	first, _, ports := w.ports()
	port := first
	if instrument != "today" {
		port = first + 9
	}
	w.applySite("hub", w.code)
	w.applyPool("pool", ports)
	w.applyServer("hub", ", replicas: 1")
	w.applyInstrument(instrument, port, "")
	g := w.gateway("pool", "pool-0")
	g.awaitPort(instrument, port)
	stop := g.follow()
	defer stop()
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.awaits("Instrument", instrument, "Programmed", "True/Programmed")
	for _, name := range []string{"riometer", "keogram"} {
		if e, err := g.entry(name); err == nil {
			w.t.Errorf("the registry has an entry of %s, of which nobody knows what it asks for: %+v", name, e)
		}
	}
}

// awaitNamed waits until the operator's metric names these objects and no others.
func (w *world) awaitNamed(old []stored) {
	w.t.Helper()
	var want []string
	for _, o := range old {
		want = append(want, strings.Join([]string{o.namespace, o.GetKind(), o.GetName()}, "/"))
	}
	slices.Sort(want)
	eventually(w.t, "the metric names the objects of before", func() error {
		families, err := w.metrics.Gather()
		if err != nil {
			return err
		}
		var is []string
		for _, f := range families {
			if f.GetName() != "substorm_site_object_unreadable" {
				continue
			}
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				is = append(is, strings.Join([]string{labels["namespace"], labels["kind"], labels["name"]}, "/"))
			}
		}
		if slices.Sort(is); !slices.Equal(is, want) {
			return fmt.Errorf("it names %q and should name %q", is, want)
		}
		return nil
	})
}

// runsNothing fails where the operator made a workload in the world.
func (w *world) runsNothing() {
	w.t.Helper()
	var sets appsv1.StatefulSetList
	var deployments appsv1.DeploymentList
	err := errors.Join(w.List(w.t.Context(), &sets, client.InNamespace(w.namespace)), w.List(w.t.Context(), &deployments, client.InNamespace(w.namespace)))
	if err != nil || len(sets.Items)+len(deployments.Items) > 0 {
		w.t.Errorf("%s has %d StatefulSets and %d Deployments, and should have none: %v", w.namespace, len(sets.Items), len(deployments.Items), err)
	}
}

// anew replaces the stored objects with those of a file in the current shape. Applying them on the server's side is refused: the stored
// objects do not match the current types.
func (w *world) anew(file string) {
	w.t.Helper()
	for _, u := range w.manifests("before-anew", file) {
		if err := w.applyServerSide(u); err == nil || !strings.Contains(err.Error(), "failed to create typed live object") {
			w.t.Errorf("%s %s: the API server should refuse to apply it: %v", u.GetKind(), u.GetName(), err)
		}
		if err := errors.Join(w.replace(u), w.applyServerSide(u)); err != nil {
			w.t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// awaitsServed waits until the objects that were applied again are served.
func (w *world) awaitsServed() {
	w.t.Helper()
	first, _, _ := w.ports()
	g := w.gateway("pool", "pool-0")
	g.follow()
	for i, name := range []string{"riometer", "keogram"} {
		g.awaitPort(name, first+1+i)
		w.awaits("Instrument", name, "Accepted", "True/Accepted")
		w.awaits("Instrument", name, "Programmed", "True/Programmed")
	}
	if e, err := g.entry("keogram"); err != nil || !e.LegalHold {
		w.t.Errorf("keogram is not under legal hold: %+v, %v", e, err)
	}
	eventually(w.t, "the condition goes", func() error {
		if c := find(conditionsOf(w.object("Site", "hub")), v1alpha1.ConditionObjectsUnreadable); c != nil {
			return errors.New(c.Message)
		}
		return nil
	})
}

// writesTo notes what a client asks the API server to change.
type writesTo struct {
	mu    sync.Mutex
	paths []string
}

func (a *writesTo) through(next http.RoundTripper) http.RoundTripper { return noting{next, a} }

// noting is a way to the API server on which writes are noted.
type noting struct {
	http.RoundTripper
	*writesTo
}

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		n.mu.Lock()
		n.paths = append(n.paths, req.URL.Path)
		n.mu.Unlock()
	}
	return n.RoundTripper.RoundTrip(req)
}

// of are the writes to these objects, their subresources too.
func (a *writesTo) of(old []stored) (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, path := range a.paths {
		if slices.ContainsFunc(old, func(o stored) bool {
			is := fmt.Sprintf("/namespaces/%s/%ss/%s", o.namespace, strings.ToLower(o.GetKind()), o.GetName())
			return strings.HasSuffix(path, is) || strings.Contains(path, is+"/")
		}) {
			all = append(all, path)
		}
	}
	return all
}
