// SPDX-License-Identifier: Apache-2.0

// Package kubetest starts a real etcd and API server that know Substorm's
// kinds, for the tests of the commands that ask a cluster.
package kubetest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/testenv"
)

// Cluster is an API server without nodes.
type Cluster struct {
	client.Client
	// Config lets an administrator in.
	Config *rest.Config
	// Kubeconfig is a file that lets an administrator in.
	Kubeconfig string
}

// Start starts an API server that ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	server := testenv.Kubernetes(t)
	c := &Cluster{Config: server.Config, Kubeconfig: server.Kubeconfig(t, "administrator", "system:masters")}
	cluster, err := kube.New(server.Config, "default")
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
