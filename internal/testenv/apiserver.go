// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// KubernetesAPI is a running etcd and kube-apiserver that know Substorm's
// kinds: a cluster without nodes.
type KubernetesAPI struct {
	// Config lets an administrator in. It sets no limit on requests.
	Config *rest.Config
	env    *envtest.Environment
	// users: envtest's authority makes one certificate at a time.
	users sync.Mutex
}

// Kubernetes starts an API server that ends with the test.
func Kubernetes(t testing.TB) *KubernetesAPI {
	t.Helper()
	k, err := StartKubernetes()
	return k.until(t, err)
}

// until has the API server end with the test.
func (k *KubernetesAPI) until(t testing.TB, err error) *KubernetesAPI {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return k
}

// KubernetesWith starts an API server that ends with the test and knows these kinds alone.
func KubernetesWith(t testing.TB, definitions []*apiextensionsv1.CustomResourceDefinition) *KubernetesAPI {
	t.Helper()
	k, err := startKubernetes(envtest.CRDInstallOptions{CRDs: definitions}, nil)
	return k.until(t, err)
}

// KubernetesWithFlags starts an API server with further flags, by name without dashes, that ends with the test.
func KubernetesWithFlags(t testing.TB, flags map[string]string) *KubernetesAPI {
	t.Helper()
	kinds, err := ourKinds()
	if err != nil {
		t.Fatal(err)
	}
	k, err := startKubernetes(kinds, flags)
	return k.until(t, err)
}

// ourKinds are the CRDs of the checkout.
func ourKinds() (envtest.CRDInstallOptions, error) {
	folder, err := Checkout()
	return envtest.CRDInstallOptions{Paths: []string{filepath.Join(folder, "crds")}, ErrorIfPathMissing: true}, err
}

// otherKubernetes names a kubeconfig of an API server that already runs and knows
// Substorm's kinds. Tests then use that one: it has no users but the kubeconfig's, so tests
// of rights fail, and nothing is cleaned up between runs.
const otherKubernetes = "SUBSTORM_TEST_KUBECONFIG"

// StartKubernetes starts an API server for all tests of a package; TestMain stops it.
func StartKubernetes() (*KubernetesAPI, error) {
	if file := os.Getenv(otherKubernetes); file != "" {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", otherKubernetes, err)
		}
		config.QPS, config.Burst = -1, 0
		return &KubernetesAPI{Config: config}, nil
	}
	kinds, err := ourKinds()
	if err != nil {
		return nil, err
	}
	return startKubernetes(kinds, nil)
}

func startKubernetes(kinds envtest.CRDInstallOptions, flags map[string]string) (*KubernetesAPI, error) {
	program, err := path("kube-apiserver")
	if err != nil {
		return nil, err
	}
	if _, err := path("etcd"); err != nil {
		return nil, err
	}
	k := &KubernetesAPI{env: &envtest.Environment{
		BinaryAssetsDirectory: filepath.Dir(program), // etcd lies there too
		CRDInstallOptions:     kinds,
		// It tries five times; 20 s for each, its default, are too few where the machine does much else.
		ControlPlaneStartTimeout: time.Minute,
	}}
	// The content of etcd ends with the tests, so nothing waits for the disk that the tests' own servers keep busy.
	k.env.ControlPlane.Etcd = &envtest.Etcd{}
	k.env.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync")
	for name, value := range flags {
		k.env.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
	if k.Config, err = k.env.Start(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	k.Config.QPS, k.Config.Burst = -1, 0
	return k, nil
}

// Stop ends the API server and etcd.
func (k *KubernetesAPI) Stop() error {
	if k.env == nil {
		return nil
	}
	return k.env.Stop()
}

// Rights says whether the API server gives users the rights that Roles say: one that was
// not started here need not.
func (k *KubernetesAPI) Rights() bool { return k.env != nil }

// User returns how a user of these groups gets in. Without any, the user may do nothing.
func (k *KubernetesAPI) User(name string, groups ...string) (*rest.Config, error) {
	if k.env == nil {
		return rest.CopyConfig(k.Config), nil
	}
	user, err := k.add(name, groups)
	if err != nil {
		return nil, err
	}
	return user.Config(), nil
}

// Kubeconfig writes a file that lets a user of these groups in. A user in system:masters
// may do everything.
func (k *KubernetesAPI) Kubeconfig(t testing.TB, user string, groups ...string) string {
	t.Helper()
	if k.env == nil {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		write(t, file, must(os.ReadFile(os.Getenv(otherKubernetes)))(t))
		return file
	}
	u := must(k.add(user, groups))(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, must(u.KubeConfig())(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (k *KubernetesAPI) add(name string, groups []string) (*envtest.AuthenticatedUser, error) {
	k.users.Lock()
	defer k.users.Unlock()
	return k.env.AddUser(envtest.User{Name: name, Groups: groups}, k.Config)
}
