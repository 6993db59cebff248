// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/hack/paths"
)

// buildProgram builds a program of this checkout; Go's cache makes it quick from
// the second time on.
func buildProgram(t testing.TB, dir, name string) string {
	t.Helper()
	program := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-o", program, "./"+name+"/cmd")
	build.Dir = must(paths.Checkout())(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// Program builds a program of this checkout by its folder ("cli", …) and returns the
// path of the binary, which ends with the test.
func Program(t testing.TB, name string) string {
	t.Helper()
	return buildProgram(t, t.TempDir(), name)
}

// ready asks a program whether it is.
func ready(address string) error {
	client := http.Client{Timeout: Patience}
	resp, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: %s", resp.Status)
	}
	return nil
}
