// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/kube"
)

// TestNoKubeconfig: a kubeconfig that $KUBECONFIG names and that does not exist is named.
func TestNoKubeconfig(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("KUBECONFIG", missing)
	_, err := kube.NewGetter(&kube.Flags{}).ToRESTConfig()
	if err == nil || !strings.Contains(err.Error(), "$KUBECONFIG is "+missing) {
		t.Error(err)
	}
	t.Setenv("KUBECONFIG", "")
	t.Setenv("STATE_DIRECTORY", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	if _, err = kube.NewGetter(&kube.Flags{}).ToRESTConfig(); err == nil || !strings.Contains(err.Error(), "substorm up --help") {
		t.Error(err)
	}
}
