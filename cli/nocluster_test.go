// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli"
)

// TestNoCluster: a command that finds no cluster says how to name one.
func TestNoCluster(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "STATE_DIRECTORY"} {
		t.Setenv(name, t.TempDir())
	}
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range [][]string{{"get", "instruments"}, {"delete", "instrument", "camera"}, {"status"}, {"archive", "ls"}} {
		var out bytes.Buffer
		err := cli.Run(t.Context(), cli.Config{Program: "substorm", Args: args, Stdout: &out, Stderr: &out})
		if err == nil || !strings.Contains(err.Error(), "--kubeconfig") || strings.Contains(err.Error(), "KUBERNETES_MASTER") {
			t.Errorf("substorm %q: %v\n%s", args, err, out.String())
		}
	}
}
