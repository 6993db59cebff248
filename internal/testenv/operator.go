// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"testing"
)

// StartOperator builds the operator of this checkout and runs it with these arguments, until the test ends. Kubeconfig
// is the file of whose rights it has. No image has the names that it gives to pods, unless arguments say otherwise. It
// returns as soon as it listens: what it does takes longer.
func StartOperator(t testing.TB, kubeconfig string, args ...string) *Process {
	t.Helper()
	dir, probes := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	argv := append([]string{buildProgram(t, dir, "operator"), "--metrics-address=0", "--probe-address=" + probes,
		"--gateway-image=none", "--feed-server-image=none", "--archivist-image=none", "--mirror-image=none"}, args...)
	p := newProcess(t, "operator", dir, argv, []string{"KUBECONFIG=" + kubeconfig}, func() error { return answers(probes, "healthz") })
	p.Start()
	return p
}
