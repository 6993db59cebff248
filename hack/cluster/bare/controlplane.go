// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// controlPlane lists the processes that run on the machine itself, in the order in which they start.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// startServers starts etcd and the API server.
func (c *Cluster) startServers() error {
	if err := makeCgroup(c.cgroup("control-plane")); err != nil {
		return err
	}
	if err := c.start("etcd", c.etcdArgs()...); err != nil {
		return err
	}
	return c.start("kube-apiserver", c.apiServerArgs()...)
}

// startClients starts what would give up if the API server were not ready yet.
func (c *Cluster) startClients() error {
	if err := c.start("kube-controller-manager", c.controllerManagerArgs()...); err != nil {
		return err
	}
	return c.start("kube-scheduler", c.kubeClientArgs("scheduler")...)
}

// etcdArgs leaves the fsync out: on a shared disk it is most of a small cluster's latency, and this cluster is not
// meant to survive a power cut.
func (c *Cluster) etcdArgs() []string {
	client, peer := "https://"+addresses{c.rec.Base}.api()+":2379", "https://"+addresses{c.rec.Base}.api()+":2380"
	return []string{
		"--name=" + c.Name, "--data-dir=" + filepath.Join(c.Dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + c.Name + "=" + peer,
		"--cert-file=" + c.pki("etcd.crt"), "--key-file=" + c.pki("etcd.key"),
		"--client-cert-auth", "--trusted-ca-file=" + c.pki("etcd-ca.crt"),
		"--peer-cert-file=" + c.pki("etcd.crt"), "--peer-key-file=" + c.pki("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + c.pki("etcd-ca.crt"),
	}
}

// apiServerArgs lets pods leave a node ten seconds after it is found missing, rather than five minutes.
func (c *Cluster) apiServerArgs() []string {
	a := addresses{c.rec.Base}
	return []string{
		"--bind-address=" + a.api(), "--advertise-address=" + a.api(), "--secure-port=6443",
		"--etcd-servers=https://" + a.api() + ":2379", "--etcd-cafile=" + c.pki("etcd-ca.crt"),
		"--etcd-certfile=" + c.pki("etcd-client.crt"), "--etcd-keyfile=" + c.pki("etcd-client.key"),
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"), "--anonymous-auth=false",
		"--kubelet-client-certificate=" + c.pki("apiserver-kubelet.crt"), "--kubelet-client-key=" + c.pki("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		// The servers that APIServices name recognize it by this certificate.
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"), "--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-key-file=" + c.pki("service-accounts.pub"),
		"--service-account-signing-key-file=" + c.pki("service-accounts.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-cluster-ip-range=" + a.services(), "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--default-not-ready-toleration-seconds=10", "--default-unreachable-toleration-seconds=10", "--v=1",
	}
}

// controllerManagerArgs finds a silent node missing after 12 seconds; kubelets report every 2 (see kubeletConfig).
func (c *Cluster) controllerManagerArgs() []string {
	return append(c.kubeClientArgs("controller-manager"),
		"--cluster-signing-cert-file="+c.pki("ca.crt"), "--cluster-signing-key-file="+c.pki("ca.key"),
		"--root-ca-file="+c.pki("ca.crt"), "--service-account-private-key-file="+c.pki("service-accounts.key"),
		"--use-service-account-credentials", "--allocate-node-cidrs=false",
		"--node-monitor-period=1s", "--node-monitor-grace-period=12s")
}

func (c *Cluster) kubeClientArgs(name string) []string {
	config := c.pki("kube-" + name + ".kubeconfig")
	return []string{
		"--bind-address=" + addresses{c.rec.Base}.api(), "--leader-elect=false", "--v=1",
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--tls-cert-file=" + c.pki(name+"-serving.crt"), "--tls-private-key-file=" + c.pki(name+"-serving.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
	}
}

// waitForAPI waits until the API server says that it is ready, and gives up when a process of the control plane ended.
func (c *Cluster) waitForAPI(ctx context.Context) error {
	return c.wait(ctx, "the API server", func(ctx context.Context) error {
		for _, name := range controlPlane[:2] {
			if c.pid(name) == 0 {
				return fatal{fmt.Errorf("%s ended; the end of %s:\n%s", name, c.logPath(name), c.tail(name, 10))}
			}
		}
		_, err := c.kubectl(ctx, nil, "get", "--raw", "/readyz")
		return err
	})
}

// stopControlPlane ends the processes in reverse, etcd last, all with a chance to end by themselves.
func (c *Cluster) stopControlPlane() error {
	for i := len(controlPlane) - 1; i >= 0; i-- {
		patience := 2 * time.Second
		if controlPlane[i] == "kube-apiserver" {
			patience = 0 // it would wait for its open watches
		}
		if err := c.stop(controlPlane[i], syscall.SIGTERM, patience); err != nil {
			return err
		}
	}
	return nil
}
