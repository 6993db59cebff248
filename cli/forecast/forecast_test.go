// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const manifests = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub, namespace: aurora}
spec:
  code: hub
  objectStore: {endpoint: "https://s3.example:9000", bucket: substorm, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: account}}
  spaceWeather: {sources: [{name: kp, type: PlanetaryKIndex}, {name: wind, type: SolarWind}]}
  surge:
    levels:
    - {name: storm, anyOf: [{allOf: [{quantity: Kp, atLeast: "5"}]}, {allOf: [{quantity: Bz, atMost: "-10", for: 10m}, {quantity: Speed, atLeast: "500"}]}], floors: [{kind: FeedServer, replicas: 3}, {kind: IngestGateway, replicas: 2}]}
    - {name: severe, anyOf: [{allOf: [{quantity: Kp, atLeast: "7"}]}], floors: [{kind: FeedServer, replicas: 8}, {kind: IngestGateway, name: pool, replicas: 2}]}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: pool, namespace: aurora}
spec: {siteRef: {name: hub}, storage: {storageClassName: disks}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: public, namespace: aurora}
spec: {siteRef: {name: hub}, replicas: 1}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: example.org/disk
---
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "8", memory: 1800Mi, pods: "20"}, capacity: {cpu: "8", memory: 1800Mi, pods: "20"}, conditions: [{type: Ready, status: "True"}]}
`

// cluster is an API server with one Site, two pools and a node with space for seven of their pods.
func cluster(t *testing.T) (c client.Client, kubeconfig func(user string, groups ...string) string) {
	t.Helper()
	server := testenv.Kubernetes(t)
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "aurora"}}); err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(manifests, "---\n") {
		create(t, c, text)
	}
	return c, func(user string, groups ...string) string { return server.Kubeconfig(t, user, groups...) }
}

func create(t *testing.T, c client.Client, text string) {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		t.Fatal(err)
	}
	o, err := scheme.Scheme.New(kind.GroupVersionKind())
	if err == nil {
		err = yaml.UnmarshalStrict([]byte(text), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	object := o.(client.Object)
	is := object.DeepCopyObject()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if node, isNode := object.(*corev1.Node); isNode { // the API server gives it the taint not-ready
		node.Spec.Taints = nil
		if err := c.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		node.Status = is.(*corev1.Node).Status
		if err := c.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
}

func run(kubeconfig string, args ...string) (string, error) {
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append(args, "--kubeconfig", kubeconfig, "--namespace", "aurora"))
	err := cmd.Execute()
	return out.String(), err
}

func TestPlan(t *testing.T) {
	c, kubeconfig := cluster(t)
	admin := kubeconfig("administrator", "system:masters")
	for name, test := range map[string]struct {
		args  []string
		level string
		// needs and missing of the gateway and of the feed server.
		needs, missing [2]int32
	}{
		"calm":                    {[]string{"--kp", "2"}, "", [2]int32{1, 1}, [2]int32{}},
		"what is not told":        {[]string{"--bz", "-20"}, "", [2]int32{1, 1}, [2]int32{}},
		"the wind":                {[]string{"--bz", "-20", "--speed", "700"}, "storm", [2]int32{2, 3}, [2]int32{}},
		"Kp 5":                    {[]string{"--kp", "5"}, "storm", [2]int32{2, 3}, [2]int32{}},
		"Kp 8, beside the pool's": {[]string{"--kp", "8"}, "severe", [2]int32{2, 8}, [2]int32{0, 3}}, // 7 pods in all
		"a level":                 {[]string{"--level", "severe"}, "severe", [2]int32{2, 8}, [2]int32{0, 3}},
		"a lower level":           {[]string{"--level", "storm"}, "storm", [2]int32{2, 3}, [2]int32{}},
	} {
		out, err := run(admin, append(test.args, "-o", "json")...)
		fits := test.missing == [2]int32{}
		if fits != (err == nil) || err != nil && (!errors.Is(err, ErrDoesNotFit) || usage.ExitCode(err) != 1) {
			t.Errorf("%s: %v", name, err)
		}
		var r Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Pools) != 2 {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		if needs := [2]int32{r.Pools[0].Needs, r.Pools[1].Needs}; r.Level != test.level || r.Fits != fits || needs != test.needs ||
			r.Pools[0].Missing != test.missing[0] || r.Pools[1].Missing != test.missing[1] || r.Unread != "" {
			t.Errorf("%s: %s", name, out)
		}
	}

	out, err := run(admin, "--kp", "8")
	if err == nil || !strings.Contains(err.Error(), "FeedServer public lacks 3 pods") {
		t.Errorf("the verdict: %v", err)
	}
	for _, part := range []string{"level severe: Kp 8.0 (asked, 0 s old) ≥ 7\n",
		"FeedServer/public   1      8      8      5        False  3", "IngestGateway/pool  1      2      2      7        True   0",
		"memory is short on node-a", "Add a node"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	t.Log("\n" + out)

	for args, want := range map[string]string{
		"--bz -20":             "level none: no level is fulfilled by Bz -20 nT; levels also ask for Kp and Speed, which you did not give: add --kp and --speed\n",
		"--kp 2 --speed 700":   "level none: no level is fulfilled by Kp 2 and Speed 700 km/s; levels also ask for Bz, which you did not give: add --bz\n",
		"--bz -20 --speed 700": " ≥ 500; levels also ask for Kp, which you did not give: add --kp\n",
		"--level storm":        "level storm: asked for with --level\n",
	} {
		if out, err := run(admin, strings.Fields(args)...); err != nil || !strings.Contains(out, want) || strings.Contains(out, "no source") {
			t.Errorf("%s: %v, %q is not in\n%s", args, err, want, out)
		}
	}

	for _, wrong := range [][]string{nil, {"--kp", "12"}, {"--kp", "NaN"}, {"--speed", "-1"}, {"--bz", "1e9"}, {"--kp", "5", "--level", "storm"}} {
		if _, err := run(admin, wrong...); usage.ExitCode(err) != 2 {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if _, err := run(admin, "--level", "huge"); err == nil || !strings.Contains(err.Error(), "it has storm, severe") {
		t.Errorf("a level that is none: %v", err)
	}
	if _, err := run(admin, "--kp", "5", "--site", "elsewhere"); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("a Site that is none: %v", err)
	}
	t.Run("a floor without a pool", func(t *testing.T) { withoutPool(t, c, admin) })
	t.Run("without the right to read nodes", func(t *testing.T) { withoutNodes(t, c, kubeconfig("reader")) })
}

// withoutPool: a floor of any level that names a pool which is not there raises nothing, and a check that asks each day fails for it.
func withoutPool(t *testing.T, c client.Client, kubeconfig string) {
	floor := func(name string) {
		patch := `[{"op":"replace","path":"/spec/surge/levels/1/floors/1","value":{"kind":"IngestGateway","name":"` + name + `","replicas":2}}]`
		site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: "aurora"}}
		if err := c.Patch(t.Context(), site, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	floor("poll")
	defer floor("pool")
	out, err := run(kubeconfig, "--kp", "5")
	if !errors.Is(err, ErrNoSuchPool) || errors.Is(err, ErrDoesNotFit) || usage.ExitCode(err) != 1 || !strings.Contains(err.Error(), `Site "hub" has no IngestGateway/poll`) ||
		!strings.Contains(out, `floors of IngestGateway/poll, and Site "hub" has no such pool: correct the name`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(kubeconfig, "--kp", "5", "-o", "json")
	var r Report
	if e := json.Unmarshal([]byte(out), &r); e != nil || usage.ExitCode(err) != 1 || !r.Fits || !slices.Equal(r.UnknownPools, []string{"IngestGateway/poll"}) {
		t.Errorf("%v, %v\n%s", err, e, out)
	}
	if _, err = run(kubeconfig, "--kp", "8"); !errors.Is(err, ErrNoSuchPool) || !errors.Is(err, ErrDoesNotFit) {
		t.Errorf("neither: %v", err)
	}
}

// withoutNodes: a user that may read the namespace only gets its quotas, and a note that nodes were not checked.
func withoutNodes(t *testing.T, c client.Client, kubeconfig string) {
	meta := metav1.ObjectMeta{Name: "reader", Namespace: "aurora"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"", "apps", "substorm.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "team", Namespace: "aurora"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("9")}}}
	for _, o := range []client.Object{quota, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "reader"}}}} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	var out string
	var err error
	for range testenv.Attempts() { // until the API server knows of the rights
		if out, err = run(kubeconfig, "--kp", "8"); errors.Is(err, ErrDoesNotFit) {
			break
		}
	}
	if !errors.Is(err, ErrDoesNotFit) {
		t.Fatal(err)
	}
	for _, part := range []string{"you may not list nodes", "ResourceQuota team allows 7", "False  1"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	if !strings.HasSuffix(err.Error(), "FeedServer public lacks 1 pod") {
		t.Errorf("the verdict: %v", err)
	}
}
