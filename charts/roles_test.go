// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/testenv"
)

// roles are those whose rights are tried: of people in the namespace aurora.
var roles = []string{"substorm-view", "substorm-edit", "substorm-admin"}

// right is a verb on a resource, as in instruments, pods/log or statefulsets.apps.
type right struct{ resource, verb string }

// attributes are what the API server is asked.
func (r right) attributes(namespace string) *authorizationv1.ResourceAttributes {
	resource, group, named := strings.Cut(r.resource, ".")
	resource, sub, _ := strings.Cut(resource, "/")
	if !named && slices.Contains(ourResources, resource) {
		group = "substorm.dev"
	}
	return &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: r.verb, Group: group, Resource: resource, Subresource: sub}
}

var ourResources = []string{"sites", "ingestgateways", "feedservers", "instruments", "feeds", "feedconsumers", "mirrorpartners"}

// documented is what docs/reference/roles.md says: which roles have a right.
func documented(t *testing.T) map[right][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/roles.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	table := map[right][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 8 || strings.Contains(line, "---") || strings.Contains(line, "substorm-view") {
			continue
		}
		for _, resource := range quoted.FindAllStringSubmatch(cells[2], -1) {
			for _, verb := range quoted.FindAllStringSubmatch(cells[3], -1) {
				r := right{resource[1], verb[1]}
				for i, role := range roles {
					if strings.TrimSpace(cells[4+i]) == "yes" {
						table[r] = append(table[r], role)
					}
				}
			}
		}
	}
	if len(table) < 50 {
		t.Fatalf("docs/reference/roles.md tells of %d rights", len(table))
	}
	return table
}

// bindRoles makes the roles as the chart does, and a user of each one's name who has it in the namespace aurora.
func bindRoles(t *testing.T, c client.Client) {
	t.Helper()
	for _, o := range decode(t, rendering{chart: "substorm", args: []string{"--show-only=templates/roles.yaml"}}.render(t)) {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range roles {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: "aurora"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role}}}
		if err := c.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
}

// allowed asks the API server's authorizer.
func allowed(t *testing.T, c client.Client, user string, attributes *authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// TestRoles: what docs/reference/roles.md says is allowed, and nothing else.
func TestRoles(t *testing.T) {
	server := testenv.Kubernetes(t)
	c := newNamespaces(t, server)
	bindRoles(t, c)
	eventually(t, "the authorizer knows the bindings", func() error {
		for _, role := range roles {
			if !allowed(t, c, role, right{"sites", "get"}.attributes("aurora")) {
				return fmt.Errorf("%s may not get sites", role)
			}
		}
		return nil
	})
	table := documented(t)
	for _, role := range roles {
		t.Run(role, func(t *testing.T) { tryEverything(t, c, role, table) })
	}
	t.Run("in use", func(t *testing.T) { useRoles(t, server.Config) })
}

// tryEverything tries every verb on everything that the table names, on all of every kind of ours, and on some of what no role
// opens, as a role.
func tryEverything(t *testing.T, c client.Client, role string, table map[right][]string) {
	verbs, resources := map[string]bool{"escalate": true, "impersonate": true}, map[string]bool{
		"configmaps": true, "serviceaccounts/token": true, "pods/exec": true, "deployments.apps": true, "roles.rbac.authorization.k8s.io": true}
	for r := range table {
		verbs[r.verb], resources[r.resource] = true, true
	}
	for _, resource := range ourResources {
		for _, of := range []string{"", "/status", "/finalizers", "/scale"} {
			resources[resource+of] = true
		}
	}
	for resource := range resources {
		for verb := range verbs {
			r := right{resource, verb}
			if got, want := allowed(t, c, role, r.attributes("aurora")), slices.Contains(table[r], role); got != want {
				t.Errorf("%s of %s: allowed %v, docs/reference/roles.md says %v", verb, resource, got, want)
			}
			if allowed(t, c, role, r.attributes("thule")) {
				t.Errorf("%s of %s is allowed in a namespace without a binding", verb, resource)
			}
		}
	}
}

// useRoles makes things as a person of each role does.
func useRoles(t *testing.T, config *rest.Config) {
	camera, err := os.ReadFile("../docs/samples/allsky-camera.yaml")
	if err != nil {
		t.Fatal(err)
	}
	site := rendering{chart: "substorm-site", args: []string{"--show-only=templates/site.yaml"}}.render(t)
	objects := map[string]*unstructured.Unstructured{
		"an Instrument": decode(t, string(camera))[0],
		"a Site":        decode(t, site)[0],
		"a Secret":      decode(t, "{apiVersion: v1, kind: Secret, metadata: {name: tokens}}")[0],
	}
	for role, makes := range map[string][]string{
		"substorm-view":  {},
		"substorm-edit":  {"an Instrument"},
		"substorm-admin": {"an Instrument", "a Site", "a Secret"},
	} {
		person := rest.CopyConfig(config)
		person.Impersonate.UserName = role
		as, err := client.New(person, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for what, o := range objects {
			o := o.DeepCopy()
			o.SetNamespace("aurora")
			err := as.Create(t.Context(), o, client.DryRunAll)
			if slices.Contains(makes, what) && err != nil {
				t.Errorf("%s makes %s: %v", role, what, err)
			}
			if !slices.Contains(makes, what) && !apierrors.IsForbidden(err) {
				t.Errorf("%s makes %s: %v, want it forbidden", role, what, err)
			}
		}
	}
}

// TestRolesKnowEveryKind: for each kind it is declared who may write it.
func TestRolesKnowEveryKind(t *testing.T) {
	documented := documented(t)
	files, err := filepath.Glob("../crds/substorm.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("CRDs %v, %v", files, err)
	}
	for _, file := range files {
		resource := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "substorm.dev_"), ".yaml")
		if !slices.Contains(ourResources, resource) || len(documented[right{resource, "create"}]) == 0 {
			t.Errorf("docs/reference/roles.md does not say who may create %s", resource)
		}
	}
}
