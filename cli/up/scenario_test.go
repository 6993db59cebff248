// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// TestScenario: what every Site does (e2e/scenario), without a cluster.
func TestScenario(t *testing.T) {
	t.Parallel()
	first, dir := testenv.FreePorts(t, 4), t.TempDir()
	manifest := strings.ReplaceAll(fmt.Sprintf(site, first), fmt.Sprintf("last: %d", first), fmt.Sprintf("last: %d", first+3))
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testenv.StartStandalone(t, dir)
	control := http.NewServeMux() // has the scenario kill and restart it
	control.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { s.Kill(); s.Start() })
	control.HandleFunc("POST /restart", func(http.ResponseWriter, *http.Request) { s.Stop(); s.Start() })
	server := httptest.NewServer(control)
	defer server.Close()

	checkout, err := testenv.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", filepath.Join(checkout, "e2e", "scenario", "scenario.sh"))
	c.Env = append(os.Environ(), "SUBSTORM="+testenv.Program(t, "cli"), "KUBECONFIG="+s.Kubeconfig, "SITE=hub", "POOL=north", "GATEWAY=127.0.0.1", fmt.Sprint("FIRST_PORT=", first),
		"URL="+s.URL, "KILL=curl -fsS -X POST "+server.URL+"/kill", "RESTART=curl -fsS -X POST "+server.URL+"/restart", "FOLDER="+t.TempDir())
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
