// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
)

var (
	api       client.Client
	apiConfig *rest.Config
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	server, err := testenv.StartKubernetes()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = server.Stop() }()
	apiConfig = server.Config
	if api, err = client.New(server.Config, client.Options{Scheme: scheme.Scheme}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// manifest is a file of testdata: one resource, or a resource and what becomes
// of it. A bad one begins with a comment that the API server's answer must hold.
type manifest struct {
	path    string
	refused string
	objects []*unstructured.Unstructured
}

func read(t *testing.T, folder string) []manifest {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests in %s: %v", folder, err)
	}
	var all []manifest
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := manifest{path: path}
		first, _, _ := strings.Cut(string(data), "\n")
		m.refused, _ = strings.CutPrefix(first, "# refused: ")
		for _, part := range strings.Split(string(data), "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(part), &u.Object); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			m.objects = append(m.objects, u)
		}
		all = append(all, m)
	}
	return all
}

// apply creates the first object of a manifest and then changes it into the others.
func (m manifest) apply(t *testing.T) error {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cel-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for i, u := range m.objects {
		u.SetNamespace(namespace.Name)
		err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership)
		if err != nil && i < len(m.objects)-1 {
			t.Fatalf("object %d is refused already: %v", i, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestGoodManifests(t *testing.T) {
	for _, m := range read(t, "good") {
		t.Run(filepath.Base(m.path), func(t *testing.T) {
			if err := m.apply(t); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBadManifests(t *testing.T) {
	for _, m := range read(t, "bad") {
		t.Run(filepath.Base(m.path), func(t *testing.T) {
			if m.refused == "" {
				t.Fatal("the file must begin with `# refused: …`")
			}
			err := m.apply(t)
			if err == nil {
				t.Fatal("the API server took it")
			}
			if !strings.Contains(err.Error(), m.refused) {
				t.Errorf("refused, and not for %q: %v", m.refused, err)
			}
		})
	}
}

// TestDocumentation: the samples, and every manifest of ours in the documentation, are good ones.
func TestDocumentation(t *testing.T) {
	const docs = "../../../docs"
	texts := map[string]string{}
	for _, pattern := range []string{"samples/*.yaml", "samples/*/*.yaml", "samples/*/*/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no samples: %v", err)
		}
		for _, path := range paths {
			texts[path] = text(t, path)
		}
	}
	pages, err := filepath.Glob(filepath.Join(docs, "*", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../../../README.md") {
		for i, block := range strings.Split(text(t, page), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if strings.HasPrefix(block, "apiVersion: substorm.dev") {
				texts[fmt.Sprintf("%s, block %d", page, i+1)] = block
			}
		}
	}
	for name, text := range texts {
		t.Run(filepath.Base(name), func(t *testing.T) {
			for _, part := range strings.Split(text, "\n---\n") {
				u := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(part), &u.Object); err != nil {
					t.Fatal(err)
				}
				if u.GroupVersionKind().Group == "keda.sh" {
					continue // metrics-bridge tests it with KEDA's own definition
				}
				if err := (manifest{objects: []*unstructured.Unstructured{u}}).apply(t); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
