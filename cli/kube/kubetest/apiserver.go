// SPDX-License-Identifier: Apache-2.0

// Package kubetest starts a real etcd and API server that know Substorm's
// kinds, for the tests of the commands that ask a cluster.
package kubetest

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/hack/parts/tool"
	"github.com/substorm/substorm/hack/paths"
)

// Cluster is an API server without nodes.
type Cluster struct {
	client.Client
	// Kubeconfig is a file that lets an administrator in.
	Kubeconfig string
}

// Start starts an API server that ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	checkout, err := paths.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	var programs string
	for _, name := range []string{"etcd", "kube-apiserver"} {
		program, err := tool.Path(name)
		if err != nil {
			t.Fatal(err)
		}
		programs = filepath.Dir(program)
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: programs,
		CRDDirectoryPaths:     []string{filepath.Join(checkout, "crds")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	admin, err := env.AddUser(envtest.User{Name: "administrator", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(c.Kubeconfig, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.New(config, "default")
	if err != nil {
		t.Fatal(err)
	}
	c.Client = cluster.Client
	return c
}

// Create creates objects, and their namespaces where they are missing.
func (c *Cluster) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
		if err := c.Client.Create(t.Context(), namespace); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}
