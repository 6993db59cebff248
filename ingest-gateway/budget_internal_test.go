// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/substorm/substorm/ingest-gateway/receive/tcp"
)

func TestBudgetUnderLimit(t *testing.T) {
	for _, c := range []struct {
		limit, budget int64
		want          limits
	}{
		{0, 0, limits{budget: 256 << 20, connections: tcp.DefaultMaxConnections}},
		{96 << 20, 0, limits{budget: 48 << 20, connections: 1024}},
		{512 << 20, 0, limits{budget: 256 << 20, connections: 5461}},
		{96 << 20, 16 << 20, limits{budget: 16 << 20, connections: 1024}},
		{1 << 20, 0, limits{budget: minMemoryBudget, connections: minConnections}},
	} {
		if got := limitsUnder(c.limit, c.budget); got != c.want {
			t.Errorf("limit %d, budget %d: %+v, want %+v", c.limit, c.budget, got, c.want)
		}
	}
}

// inGroup tells a process of TestBudgetInGroup that it is the one in the group.
const inGroup = "SUBSTORM_TEST_IN_GROUP"

// It ends before TestMain, whose build of the gateway does not fit in the group.
func init() {
	if os.Getenv(inGroup) != "" {
		fmt.Printf("budget=%d heap=%d\n", memoryLimits(0).budget, debug.SetMemoryLimit(-1))
		os.Exit(0)
	}
}

// A process in a real group of version 1 with 96 MiB gets 48 MiB, and its heap
// is bounded.
func TestBudgetInGroup(t *testing.T) {
	const limit = 96 << 20
	const hierarchy = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(filepath.Join(hierarchy, "memory.limit_in_bytes")); err != nil {
		t.Skip("no control groups of version 1 for memory: ", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root makes control groups")
	}
	group, err := os.MkdirTemp(hierarchy, "substormtest")
	if err != nil {
		t.Skip("control groups cannot be made here: ", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), fmt.Append(nil, limit), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ > "$1/cgroup.procs" && exec "$2"`, "sh", group, self)
	cmd.Env = append(os.Environ(), inGroup+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Four fifths of the limit are the heap's.
	if want := fmt.Sprintf("budget=%d heap=%d\n", limit/2, limit*4/5); string(out) != want {
		t.Errorf("%s, want %s", out, want)
	}
}
