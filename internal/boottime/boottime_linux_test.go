// SPDX-License-Identifier: Apache-2.0

package boottime

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestNow: the clock is the one that runs on while the machine is
// suspended. A time namespace tells it from the one that does not.
func TestNow(t *testing.T) {
	const child, offset = "SUBSTORM_TEST_BOOTTIME", 1_000_000
	if os.Getenv(child) != "" {
		fmt.Printf("boot=%d.\n", int64(Now().Seconds()))
		return
	}
	cmd := exec.Command("unshare", "--time", "--fork", "--boottime", strconv.Itoa(offset), os.Args[0], "-test.run=^TestNow$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "boot=") {
		t.Skipf("no time namespace on this machine (CAP_SYS_ADMIN, Linux 5.6): %v: %s", err, out)
	}
	_, after, _ := strings.Cut(string(out), "boot=")
	digits, _, _ := strings.Cut(after, ".")
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if seconds < offset {
		t.Errorf("with CLOCK_BOOTTIME set forward by %d s the clock says %d s", offset, seconds)
	}
}
