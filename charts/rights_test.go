// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
)

// account is the operator's, as the API server sees it.
const account = "system:serviceaccount:aurora:test-operator"

// TestOperatorRights runs the operator with the arguments and exactly the rights that the chart gives it, and has it do its
// work in each namespace.
func TestOperatorRights(t *testing.T) {
	for _, test := range []struct {
		name       string
		args       []string
		namespaces []string // where it works
		elsewhere  bool     // whether it may work in the others
		kubeSystem bool     // whether it may get that namespace
		secrets    bool     // whether it may list and watch Secrets
		nodes      bool     // whether it may list nodes and what runs on them
	}{
		{name: "in its own namespace", namespaces: []string{"aurora"}, kubeSystem: true},
		{name: "without cluster rights", args: []string{"--set=operator.clusterID=polar", "--set=operator.watchNamespaces={aurora,thule}", "--set=roles.create=false,crds.upgrade=false"},
			namespaces: []string{"aurora", "thule"}},
		{name: "watching Secrets", args: []string{"--set=operator.watchSecrets=true"}, namespaces: []string{"aurora"}, kubeSystem: true, secrets: true},
		{name: "reading nodes", args: []string{"--set=operator.readNodes=true,operator.clusterID=polar"}, namespaces: []string{"aurora"}, kubeSystem: false, nodes: true},
		{name: "in all namespaces", args: []string{"--set=operator.watchAllNamespaces=true"}, namespaces: []string{"aurora", "thule"}, elsewhere: true, kubeSystem: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := testenv.Kubernetes(t)
			c := newNamespaces(t, server)
			chart := decode(t, rendering{chart: "substorm", args: append(test.args, "--no-hooks")}.render(t))
			arguments := grant(t, c, chart)
			kubeconfig := server.Kubeconfig(t, account, "system:serviceaccounts", "system:serviceaccounts:aurora")
			operator := testenv.StartOperator(t, kubeconfig, arguments...)
			for _, namespace := range test.namespaces {
				newSite(t, namespace).works(t, c)
			}
			if log := operator.Log(); strings.Contains(strings.ToLower(log), "forbidden") {
				t.Errorf("the operator lacks a right:\n%s", log)
			}
			for what, r := range map[string]struct {
				right
				namespace string
				want      bool
			}{
				"Secrets of a namespace that no value names": {right{"secrets", "get"}, "kube-public", test.elsewhere},
				"the list of Secrets":                        {right{"secrets", "list"}, test.namespaces[0], test.secrets},
				"a watch of Secrets":                         {right{"secrets", "watch"}, test.namespaces[0], test.secrets},
				"the list of others' Secrets":                {right{"secrets", "list"}, "kube-public", false},
				"the list of nodes":                          {right{"nodes", "list"}, "", test.nodes},
				"a watch of others' pods":                    {right{"pods", "watch"}, "kube-public", test.nodes || test.elsewhere},
				"the change of nodes":                        {right{"nodes", "patch"}, "", false},
				"the list of namespaces":                     {right{"namespaces", "list"}, "", false},
				"an Instrument's spec":                       {right{"instruments", "patch"}, test.namespaces[0], false},
				"the deletion of Sites":                      {right{"sites", "delete"}, test.namespaces[0], false},
				"the deletion of Feeds":                      {right{"feeds", "delete"}, test.namespaces[0], false},
			} {
				if got := allowed(t, c, account, r.attributes(r.namespace)); got != r.want {
					t.Errorf("%s: allowed %v", what, got)
				}
			}
			system := right{"namespaces", "get"}.attributes("")
			system.Name = "kube-system"
			if got := allowed(t, c, account, system); got != test.kubeSystem {
				t.Errorf("get the namespace kube-system: allowed %v", got)
			}
			if !test.kubeSystem && !test.nodes {
				namespaced(t, c, chart, test.namespaces)
			}
			check(t, kubeconfig, test.args, test.elsewhere)
		})
	}
}

// grant makes what the chart has of accounts and rights, and returns the operator's arguments.
func grant(t *testing.T, c client.Client, chart []*unstructured.Unstructured) (arguments []string) {
	t.Helper()
	for _, o := range chart {
		switch o.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Lease":
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		case "Deployment":
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if err != nil || len(containers) != 1 {
				t.Fatalf("containers %v, %v", containers, err)
			}
			arguments, _, err = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return arguments
}

// check runs what helm test runs.
func check(t *testing.T, kubeconfig string, args []string, everywhere bool) {
	t.Helper()
	pod := decode(t, rendering{chart: "substorm", args: append(args, "--show-only=templates/test.yaml")}.render(t))[0]
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	arguments, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), testenv.Program(t, "operator"), arguments...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(arguments...); err != nil {
		t.Errorf("%v: %v\n%s", arguments, err, out)
	}
	if everywhere {
		return
	}
	if out, err := run("check", "--watch-namespaces=aurora,andoya", "--namespace=aurora", "--wait=100ms"); err == nil || !strings.Contains(out, `in namespace \"andoya\"`) {
		t.Errorf("a namespace without rights passes: %v\n%s", err, out)
	}
	if out, err := run("check", "--watch-namespaces=aurora", "--namespace=thule", "--wait=100ms"); err == nil || !strings.Contains(out, "read the Lease") {
		t.Errorf("a namespace without a leader passes: %v\n%s", err, out)
	}
}

// newSite starts a NATS and an S3 server for a Site with everything that the operator makes.
func newSite(t *testing.T, namespace string) site {
	t.Helper()
	nats := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	minio := testenv.SharedMinIO(t, testenv.MinIOOptions{})
	secret := func(name string, data map[string]string) string {
		text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]string{"name": name}, "stringData": data})
		if err != nil {
			t.Fatal(err)
		}
		return "---\n" + string(text)
	}
	return site{namespace, secret("s3", map[string]string{"accessKeyID": minio.AccessKeyID, "secretAccessKey": minio.SecretAccessKey}) +
		secret("account", map[string]string{"account.seed": nats.AccountSeed, "account.id": nats.AccountID}) +
		secret("consumers", map[string]string{"account.seed": nats.ConsumersSeed, "account.id": nats.ConsumersID}) + fmt.Sprintf(`
---
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: %[1]s}
spec:
  code: %[1]s
  objectStore: {endpoint: %[2]q, bucket: %[3]s, credentialsSecretRef: {name: s3}}
  jetStream:
    servers: [%[4]q]
    accountKeySecretRef: {name: account}
    consumerAccountKeySecretRef: {name: consumers}
    durability: Synced
    observations: {maxSize: 64Mi}
    notices: {maxSize: 64Mi}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %[1]s}
spec: {siteRef: {name: %[1]s}, replicas: 1}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: pool}
spec: {siteRef: {name: %[1]s}, service: {type: ClusterIP}}
---
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: everything}
spec: {siteRef: {name: %[1]s}, deletionPolicy: Delete, stream: {retention: 1h, maxSize: 16Mi}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: display}
spec: {feedRef: {name: everything}, delivery: {type: NATS}}
`, namespace, minio.URL(), testenv.BucketName(), nats.URL())}
}

// site is the manifests of a Site in a namespace, whose name it has.
type site struct{ namespace, manifests string }

// works declares the Site, and waits for what the operator makes of it: workloads, Secrets, Services, budgets, and statuses.
func (s site) works(t *testing.T, c client.Client) {
	t.Helper()
	camera, err := os.ReadFile("../docs/samples/allsky-camera.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(decode(t, s.manifests), decode(t, string(camera))...) {
		o.SetNamespace(s.namespace)
		if o.GetKind() == "Instrument" {
			_ = unstructured.SetNestedField(o.Object, s.namespace, "spec", "siteRef", "name")
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"Site " + s.namespace, "IngestGateway pool", "FeedServer " + s.namespace, "Instrument allsky-camera", "Feed everything", "FeedConsumer display"} {
		word := strings.Fields(kind)
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("substorm.dev/v1alpha1")
		o.SetKind(word[0])
		eventually(t, kind+" is accepted", func() error {
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: word[1]}, o); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, condition := range conditions {
				if c := condition.(map[string]any); c["type"] == "Accepted" && c["status"] == "True" {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", conditions)
		})
	}
	for _, made := range []string{"apps/v1 StatefulSet pool", "apps/v1 Deployment " + s.namespace + "-feed-server", "apps/v1 Deployment " + s.namespace + "-archivist",
		"v1 Service " + s.namespace + "-feed-server",
		"v1 ServiceAccount pool", "v1 Secret pool-jetstream", "v1 Secret display-consumer", "policy/v1 PodDisruptionBudget pool"} {
		word := strings.Fields(made)
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(word[0])
		o.SetKind(word[1])
		eventually(t, s.namespace+" has "+made, func() error {
			return c.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: word[2]}, o)
		})
	}
}

// namespaced fails for whatever is not in a namespace that the values name.
func namespaced(t *testing.T, c client.Client, chart []*unstructured.Unstructured, namespaces []string) {
	t.Helper()
	for _, o := range chart {
		kind := o.GroupVersionKind()
		mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		if mapping.Scope.Name() != meta.RESTScopeNameNamespace || !slices.Contains(namespaces, o.GetNamespace()) {
			t.Errorf("%s %s is in namespace %q", o.GetKind(), o.GetName(), o.GetNamespace())
		}
	}
}

// TestInstallation tries what helm makes as people who may install it in a namespace and have no rights in the cluster: one who may do
// everything there, and an administrator of the namespace as Kubernetes knows it, with the roles that the chart adds to that one. (There
// is no controller that aggregates roles: the parts that it would aggregate into Kubernetes' own are bound.)
func TestInstallation(t *testing.T) {
	server := testenv.Kubernetes(t)
	c := newNamespaces(t, server)
	bindRoles(t, c)
	bind := func(user, kind, role string) {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-", Namespace: "aurora"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}}
		if err := c.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	everything := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "everything", Namespace: "aurora"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if err := c.Create(t.Context(), everything); err != nil {
		t.Fatal(err)
	}
	bind("owner", "Role", "everything")
	for _, role := range []string{"system:aggregate-to-view", "system:aggregate-to-edit", "system:aggregate-to-admin", "substorm-admin"} {
		bind("administrator", "ClusterRole", role)
	}
	values := []string{"--is-upgrade", "--set=operator.clusterID=polar,roles.create=false,crds.upgrade=false"}
	for _, test := range []struct {
		user, set string
		refused   []string // kinds
	}{
		{"owner", "rbac.create=true", nil},
		{"administrator", "rbac.create=false", nil},
		{"administrator", "rbac.create=true", []string{"Role"}},
	} {
		person := rest.CopyConfig(server.Config)
		person.Impersonate.UserName = test.user
		as, err := client.New(person, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the authorizer knows the bindings of "+test.user, func() error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion("v1")
			list.SetKind("SecretList")
			return as.List(t.Context(), list, client.InNamespace("aurora"))
		})
		var refused []string
		for _, o := range decode(t, rendering{chart: "substorm", args: append(values, "--set="+test.set)}.render(t)) {
			err := as.Create(t.Context(), o, client.DryRunAll)
			if err != nil && !apierrors.IsNotFound(err) { // as for a binding's Role, which a dry run does not make
				refused = append(refused, o.GetKind())
				t.Logf("%s, %s: %s %s: %v", test.user, test.set, o.GetKind(), o.GetName(), err)
			}
		}
		slices.Sort(refused)
		if refused = slices.Compact(refused); !slices.Equal(refused, test.refused) {
			t.Errorf("%s, %s: refused are %v, want %v", test.user, test.set, refused, test.refused)
		}
	}
}

// TestRightsOfREADME: the chart gives what operator/README.md says, with which the operator's own tests run, and what that
// page says it adds.
func TestRightsOfREADME(t *testing.T) {
	readme, err := os.ReadFile("../operator/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := bytes.Cut(readme, []byte("```yaml\n"))
	text, _, _ = bytes.Cut(text, []byte("```"))
	var want []rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{}
	for _, o := range decode(t, rendering{chart: "substorm", args: []string{"--show-only=templates/rbac.yaml"}}.render(t)) {
		if o.GetKind() == "Role" && o.GetName() == "test-operator" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := rights(role.Rules)
	got = slices.DeleteFunc(got, func(r string) bool { return strings.HasSuffix(r, "/finalizers update") })
	if diff := cmp.Diff(rights(want), got); diff != "" {
		t.Errorf("-operator/README.md +chart:\n%s", diff)
	}
}

// rights are single verbs on single resources.
func rights(rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, fmt.Sprintf("%s %s %s", group, resource, verb))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
