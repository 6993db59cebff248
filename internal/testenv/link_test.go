// SPDX-License-Identifier: Apache-2.0

//go:build linux

package testenv

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// A ping over a Link takes as long as it says. The test runs itself in a namespace of its own.
func TestLink(t *testing.T) {
	if os.Getenv(isolated) == "" {
		if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
			t.Skipf("this needs the privilege to make network namespaces, and the program unshare: %v: %s", err, out)
		}
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run", "^TestLink$", "-test.v")
		cmd.Env = append(os.Environ(), isolated+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := Isolate(); err != nil {
		t.Skip(err)
	}
	l := NewLink(t, LinkOptions{RoundTrip: 60 * time.Millisecond})
	begun := time.Now()
	if out, err := l.Far(t.Context(), "bash", "-c", "exec 3<>/dev/tcp/"+l.Near()+"/1").CombinedOutput(); err == nil {
		t.Errorf("something listens there: %s", out)
	}
	if took := time.Since(begun); took < 60*time.Millisecond { // it is a delay, and no speed
		t.Errorf("a connection is refused after %v", took)
	}
	if l.Bytes() == 0 || l.Dropped() > 0 {
		t.Errorf("%d bytes, %d packets dropped", l.Bytes(), l.Dropped())
	}
}
