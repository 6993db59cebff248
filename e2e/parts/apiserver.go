// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/substorm/substorm/hack/paths"
)

// KubernetesAPI is a running etcd and kube-apiserver that know Substorm's
// kinds: a cluster without nodes.
type KubernetesAPI struct {
	// Config lets an administrator in.
	Config *rest.Config
	env    *envtest.Environment
}

// Kubernetes starts an API server that ends with the test.
func Kubernetes(t testing.TB) *KubernetesAPI {
	t.Helper()
	checkout, err := paths.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	Path(t, "etcd")
	k := &KubernetesAPI{env: &envtest.Environment{
		BinaryAssetsDirectory: filepath.Dir(Path(t, "kube-apiserver")), // etcd lies there too
		CRDDirectoryPaths:     []string{filepath.Join(checkout, "crds")},
		ErrorIfCRDPathMissing: true,
	}}
	if k.Config, err = k.env.Start(); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := k.env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return k
}

// Kubeconfig writes a file that lets a user of these groups in. Who is in
// system:masters may do everything.
func (k *KubernetesAPI) Kubeconfig(t testing.TB, user string, groups ...string) string {
	t.Helper()
	u := must(k.env.AddUser(envtest.User{Name: user, Groups: groups}, nil))(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, must(u.KubeConfig())(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
