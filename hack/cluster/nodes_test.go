// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestNodeByNumberOrName(t *testing.T) {
	all := []node{{number: 1, name: "substorm-control-plane"}, {number: 2, name: "substorm-worker"}}
	for arg, want := range map[string]int{"1": 1, "2": 2, "substorm-worker": 2, "3": 0, "0": 0, "-1": 0, "": 0, "worker": 0} {
		if got, found := number(all, arg); got != want || found != (want != 0) {
			t.Errorf("%q is node %d, %v; want %d", arg, got, found, want)
		}
	}
	for _, word := range []string{"cluster substorm", "1 (substorm-control-plane)", "2 (substorm-worker)"} {
		if got := nodesOf("substorm", all); !strings.Contains(got, word) {
			t.Errorf("%q does not say %q", got, word)
		}
	}
}

// TestNodeCommandsExplainThemselves runs the commands without a node, without a cluster.
func TestNodeCommandsExplainThemselves(t *testing.T) {
	t.Setenv("SUBSTORM_CACHE", t.TempDir())
	for _, command := range []string{"kill", "start", "cut", "join", "exec"} {
		cmd := root()
		cmd.SetArgs([]string{command, "--name", "nowhere", "--on", "bare"})
		err := cmd.ExecuteContext(t.Context())
		if err == nil {
			t.Fatalf("%s without a node did something", command)
		}
		for _, word := range []string{"NODE", "go run ./hack/cluster " + command + " NODE", "go run ./hack/cluster " + command + " 2",
			"no cluster nowhere", "./hack/cluster --name nowhere up"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s does not say %q: %v", command, word, err)
			}
		}
	}
}
