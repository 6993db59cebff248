// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"path/filepath"
	"testing"
)

// Standalone is a `substorm up`.
type Standalone struct {
	*Process
	// URL is where its first FeedServer serves, Metrics where metrics are, DataDir its data folder, Kubeconfig how to reach its API.
	URL, Metrics, DataDir, Kubeconfig string
}

// StartStandalone builds `substorm` of this checkout, has it run manifests and waits until its FeedServer answers.
func StartStandalone(t testing.TB, manifests string, flags ...string) *Standalone {
	t.Helper()
	s := StandaloneIn(t, filepath.Join(t.TempDir(), "data", "substorm"), manifests, flags...) // as $XDG_DATA_HOME/substorm
	s.Start()
	return s
}

// StandaloneIn is as StartStandalone, with a data folder of the caller's, and does not run yet: see Process.Start.
func StandaloneIn(t testing.TB, dataDir, manifests string, flags ...string) *Standalone {
	t.Helper()
	return StandaloneAt(t, "127.0.0.1", dataDir, manifests, flags...)
}

// StandaloneAt is as StandaloneIn, and its FeedServer listens at an address, which may be 0.0.0.0 in a network namespace of the test's own.
func StandaloneAt(t testing.TB, address, dataDir, manifests string, flags ...string) *Standalone {
	t.Helper()
	dir := t.TempDir()
	port, metrics := FreePort(t), fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	s := &Standalone{URL: "http://" + listen, Metrics: "http://" + metrics + "/metrics", DataDir: dataDir, Kubeconfig: filepath.Join(dataDir, "api", "kubeconfig")}
	argv := append([]string{buildProgram(t, dir, "cli"), "up", "-f", manifests, "--data-dir", s.DataDir, "--listen", fmt.Sprintf("%s:%d", address, port), "--listen-metrics", metrics}, flags...)
	s.Process = newProcess(t, "substorm", dir, argv, nil, func() error { return answers(listen, "robots.txt") })
	return s
}

// Program is the binary of `substorm`.
func (s *Standalone) Program() string { return s.argv[0] }
