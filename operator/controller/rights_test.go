// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// grant gives a user the rights that operator/README.md lists.
func (w *world) grant(user string) {
	w.t.Helper()
	if !api.Rights() {
		return
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		w.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var rules []rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rules); err != nil || len(rules) == 0 {
		w.t.Fatalf("the rights in operator/README.md: %v", err)
	}
	meta := metav1.ObjectMeta{Name: user, Namespace: w.namespace}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}
	w.ensure(&rbacv1.Role{ObjectMeta: meta, Rules: rules})
	w.ensure(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
	ref.Kind, meta.Namespace = "ClusterRole", ""
	rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}}}
	if w.readNodes {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "pods", "persistentvolumes"}, Verbs: []string{"list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"list", "watch"}})
	}
	w.ensure(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	w.ensure(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
}

// awaitRights waits until the API server has seen what grant granted.
func (w *world) awaitRights(user *rest.Config) {
	w.t.Helper()
	c, err := client.New(user, client.Options{Scheme: scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	sites := &metav1.PartialObjectMetadataList{} // one that cannot be decoded fails no list of these
	sites.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SiteList"))
	eventually(w.t, "the operator has its rights", func() error {
		return errors.Join(
			c.Get(w.t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}),
			c.List(w.t.Context(), sites, client.InNamespace(w.namespace)))
	})
}
