// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"path/filepath"
	"testing"
)

// KubernetesAggregating starts an API server that ends with the test and passes requests on to the servers that APIServices name, as
// clusters' do. It shows them a certificate of an authority that they find in the ConfigMap extension-apiserver-authentication.
func KubernetesAggregating(t testing.TB) *KubernetesAPI {
	t.Helper()
	const name = "front-proxy-client"
	proxy := NewCA(t).Dir(t, name)
	return KubernetesWithFlags(t, map[string]string{
		"requestheader-client-ca-file": filepath.Join(proxy, "ca.crt"), "requestheader-allowed-names": name,
		"requestheader-username-headers": "X-Remote-User", "requestheader-group-headers": "X-Remote-Group", "requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file": filepath.Join(proxy, "tls.crt"), "proxy-client-key-file": filepath.Join(proxy, "tls.key"),
	})
}

// Controllers runs controllers of Kubernetes beside the API server until the test ends, each with the rights that Kubernetes gives it.
// Controllers are names as kube-controller-manager knows them, with commas between them.
func (k *KubernetesAPI) Controllers(t testing.TB, controllers string, flags ...string) *Process {
	t.Helper()
	config := k.Kubeconfig(t, "controller-manager", "system:masters")
	argv := append([]string{Path(t, "kube-controller-manager"), "--kubeconfig", config, "--controllers", controllers, "--secure-port=0",
		"--leader-elect=false", "--use-service-account-credentials"}, flags...)
	p := newProcess(t, "kube-controller-manager", t.TempDir(), argv, nil, func() error { return nil })
	p.Start()
	return p
}
