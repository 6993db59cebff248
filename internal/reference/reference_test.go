// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestReferenceKinds: docs/reference has a page for each kind.
func TestReferenceKinds(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "crds", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no CustomResourceDefinitions: %v", err)
	}
	for _, path := range paths {
		name, page, err := Kind(path)
		if err != nil {
			t.Fatal(err)
		}
		Check(t, root, "kinds/"+strings.ToLower(name)+".md", page)
	}
}

func TestReferenceConditions(t *testing.T) {
	page, err := Conditions(filepath.Join(root, "operator", "api", "v1alpha1"), filepath.Join(root, "operator", "plan", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root, "conditions.md", page)
}

func TestReferenceCauses(t *testing.T) {
	page, err := Causes(filepath.Join(root, "internal", "wire", "receipt.go"))
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root, "causes.md", page)
}

func TestReferenceValues(t *testing.T) {
	for _, chart := range []string{"substorm", "substorm-site", "substorm-quickstart"} {
		page, err := Values(filepath.Join(root, "charts", chart))
		if err != nil {
			t.Fatal(err)
		}
		Check(t, root, "values-"+chart+".md", page)
	}
}

func TestReferenceMetrics(t *testing.T) {
	programs, err := Programs(root, "ingest-gateway", "archivist", "feed-server", "mirror-jobs", "operator", "metrics-bridge")
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root, "metrics.md", MetricsPage(programs))
}
