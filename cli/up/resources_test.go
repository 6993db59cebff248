// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

var ages = regexp.MustCompile(` +[0-9]+[smh0-9]*\n`)

// lastApplied is a warning of kubectl about an annotation of its own, which an object that a file of substorm up declares does not have.
var lastApplied = regexp.MustCompile(`(?m)^Warning: resource .* is missing the kubectl\.kubernetes\.io/last-applied-configuration annotation .*\n`)

// likeKubectl: get, apply and delete of substorm say what kubectl's say, find the Site of this computer by themselves, and end with a signal.
func likeKubectl(t *testing.T, program, dataDir, kubeconfig, declared, manifest string) {
	t.Helper()
	run := func(env, program string, args ...string) (out string, code int) {
		c := exec.Command(program, args...)
		c.Env = append(os.Environ(), env, "HOME="+t.TempDir())
		said, err := c.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return ages.ReplaceAllString(string(said), " AGE\n"), code
	}
	kubectl := testenv.Path(t, "kubectl")
	for _, args := range [][]string{
		{"get", "instruments"}, {"get", "substorm", "-o", "wide"}, {"get", "inst/camera", "-o", "yaml"}, {"get", "site", "hub", "-o", "json"}, {"get", "instruments", "-A", "-o", "name"},
		{"get", "instrument", "nothing"}, {"get", "nothings"}, {"delete", "instrument", "nothing"}, {"apply", "-f", "no-such-file"}, {"get", "sites", "-n", "elsewhere"},
		{"apply", "--dry-run=server", "-f", declared}, // by a file that substorm up follows
	} {
		eventually(t, strings.Join(args, " "), func() error { // a status may change between the two
			want, wantCode := run("KUBECONFIG="+kubeconfig, kubectl, args...)
			want = lastApplied.ReplaceAllString(want, "")
			got, code := run("KUBECONFIG="+kubeconfig, program, args...)
			if got != want || code != wantCode {
				return fmt.Errorf("substorm says, exit code %d:\n%s\nand kubectl, exit code %d:\n%s", code, got, wantCode, want)
			}
			return nil
		})
	}

	if out, code := run("KUBECONFIG="+kubeconfig, program, "get"); code != 2 || !strings.Contains(out, "TYPE") || strings.Contains(out, "api-resources") {
		t.Errorf("substorm get: exit code %d, %s", code, out)
	}

	// The Site of this computer's user is found without a kubeconfig.
	here := "XDG_DATA_HOME=" + filepath.Dir(dataDir)
	for _, step := range []struct{ args, says string }{
		{"apply -f " + manifest, "instrument.substorm.dev/extra created\n"},
		{"apply -f " + manifest, "instrument.substorm.dev/extra unchanged\n"},
		{"delete -f " + manifest, "instrument.substorm.dev \"extra\" deleted from default namespace\n"},
	} {
		if out, code := run(here, program, strings.Fields(step.args)...); code != 0 || out != step.says {
			t.Errorf("substorm %s: exit code %d, %q", step.args, code, out)
		}
	}

	watch := exec.Command(program, "get", "instruments", "-w")
	watch.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var said bytes.Buffer
	watch.Stderr = &said
	lines, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() && !strings.HasPrefix(scanner.Text(), "camera ") {
	}
	_ = watch.Process.Signal(syscall.SIGINT)
	// Kubernetes' own handler of signals may be first: it exits with 1.
	if _ = watch.Wait(); watch.ProcessState.ExitCode() != 130 && watch.ProcessState.ExitCode() != 1 {
		t.Errorf("get -w, interrupted: exit code %d\n%s", watch.ProcessState.ExitCode(), said.String())
	}
}
