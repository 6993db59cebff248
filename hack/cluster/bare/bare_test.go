// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadRoutes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "route")
	text := "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" +
		"x-br\t0000D60A\t0B00D50A\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readRoutes(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.214.0.0/16")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if !overlaps(addresses{213}.all(), got) {
		t.Error("a cluster on 10.213 would take the routed 10.214.0.0/16")
	}
	if overlaps(addresses{216}.all(), got) {
		t.Error("a cluster on 10.216 clashes with nothing")
	}
}

func TestIdentityTellsProcessesApart(t *testing.T) {
	c := &Cluster{Name: "x", Dir: t.TempDir()}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	})
	if err := c.remember("sleep", cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if c.pid("sleep") != cmd.Process.Pid {
		t.Fatal("a running process is not found again")
	}
	// The same number with another start is another process.
	forged := `{"PID": 1, "Started": "1", "Boot": "other"}`
	if err := os.WriteFile(c.pidPath("init"), []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid := c.pid("init"); pid != 0 {
		t.Errorf("process %d is taken for one that this cluster started", pid)
	}
}

func TestPKI(t *testing.T) {
	c := &Cluster{Name: "x", Dir: t.TempDir(), rec: record{Base: 213}}
	if err := c.makePKI(); err != nil {
		t.Fatal(err)
	}
	if err := c.makeNodePKI(2); err != nil {
		t.Fatal(err)
	}
	for file, names := range map[string][]string{
		"apiserver":             {"10.213.0.1", "10.215.0.1", "kubernetes.default.svc"},
		"kubelet-node2-serving": {"10.213.0.12", "node2"},
		"etcd":                  {"10.213.0.1"},
	} {
		pair, err := tls.LoadX509KeyPair(c.pki(file+".crt"), c.pki(file+".key"))
		if err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(c.pki(map[bool]string{true: "etcd-ca.crt", false: "ca.crt"}[file == "etcd"]))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		for _, name := range names {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
				t.Errorf("%s does not stand for %s: %v", file, name, err)
			}
		}
	}
	info, err := os.Stat(c.Kubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the administrator's kubeconfig: %v, %v", info, err)
	}
}

func TestTemplatesNeedNothingMore(t *testing.T) {
	c := &Cluster{Name: "x", Dir: t.TempDir(), rec: record{Base: 213}}
	if err := c.makePKI(); err != nil {
		t.Fatal(err)
	}
	if err := c.writeNodeFiles(1); err != nil {
		t.Error(err)
	}
	if _, err := c.makeVolumes(1); err != nil {
		t.Error(err)
	}
}
