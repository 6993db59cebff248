// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Path returns the path of a real server's program ("nats-server", "minio", "etcd", …).
// A program that was never built on this machine is built first; standard error shows how
// far that is.
func Path(t testing.TB, name string) string {
	t.Helper()
	return must(path(name))(t)
}

// built has the path of each program that was asked for.
var built sync.Map

// path is Path without a test. hack/parts, a program of the module hack, knows where the
// programs lie and how they are built.
func path(name string) (string, error) {
	if known, ok := built.Load(name); ok {
		return known.(string), nil
	}
	folder, err := Checkout()
	if err != nil {
		return "", err
	}
	parts := exec.Command("go", "run", "./parts", "path", name)
	parts.Dir, parts.Stderr = filepath.Join(folder, "hack"), os.Stderr // there also without go.work
	out, err := parts.Output()
	if err != nil {
		return "", fmt.Errorf("go run ./hack/parts path %s: %w", name, err)
	}
	file := strings.TrimSpace(string(out))
	built.Store(name, file)
	return file, nil
}

// Checkout returns the folder of this module's sources.
func Checkout() (string, error) { return checkout() }

var checkout = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/substorm/substorm").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of Substorm: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// buildProgram builds a program of this checkout; Go's cache makes it quick from
// the second time on.
func buildProgram(t testing.TB, dir, name string) string {
	t.Helper()
	program := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-o", program, "./"+name+"/cmd")
	build.Dir = must(Checkout())(t)
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
