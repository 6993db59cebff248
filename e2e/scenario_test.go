// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestScenario: what every Site does (scenario/), on a cluster. The same runs without one: TestScenario of cli/up.
func TestScenario(t *testing.T) {
	l := theLab
	url := httptest.NewServer(l.toFeedServers(t))
	defer url.Close()
	_, node := l.readyGateway(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(l.kubeconfig)
	if err == nil {
		err = os.WriteFile(kubeconfig, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.output(l.kubectlBin, "--kubeconfig", kubeconfig, "config", "set-context", "--current", "--namespace", namespace); err != nil {
		t.Fatal(err)
	}
	const ours = " -l 'app.kubernetes.io/name in (ingest-gateway, feed-server, archivist)'"
	c := exec.Command("sh", filepath.Join(l.root, "e2e", "scenario", "scenario.sh"))
	c.Env = append(os.Environ(), "SUBSTORM="+l.substorm, "KUBECONFIG="+kubeconfig, "SITE=demo", "POOL=demo", "GATEWAY="+node, "FIRST_PORT=30145", "URL="+url.URL, "FOLDER="+t.TempDir(),
		"KILL="+l.kubectlBin+" delete pods --force --grace-period=0 --wait=false"+ours, "RESTART="+l.kubectlBin+" delete pods --timeout=2m"+ours)
	out, err := c.CombinedOutput()
	fmt.Printf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// toFeedServers passes each request to a feed server that is ready then.
func (l *lab) toFeedServers(t testing.TB) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			ready, err := l.feedServers()
			if err != nil || len(ready) == 0 {
				t.Logf("no feed server is ready: %v", err)
			}
			r.Out.URL.Scheme, r.Out.URL.Host = "http", net.JoinHostPort("feed-server.invalid", "8080")
			for _, pod := range slices.Sorted(maps.Keys(ready)) {
				r.Out.URL.Host = net.JoinHostPort(ready[pod], "8080")
			}
		},
	}
}
