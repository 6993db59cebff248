// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// run by the tutorial of a storm; other blocks of it need a cluster.
var stormBlock = regexp.MustCompile("(?sm)<!-- run by: TestStormTutorial -->\n```sh\n(.*?)^```")

// stormTold is what the tutorial shows of the replay's table.
var stormTold = regexp.MustCompile("(?sm)^```text\n(POLICY.*?)^```")

// TestStormTutorial runs the commands of docs/tutorials/storm.md, with other ports: the replay, and a Site whose page shows that a level begins
// and ends.
func TestStormTutorial(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := strconv.Itoa(testenv.FreePort(t))
	ports := strings.NewReplacer("8083", strconv.Itoa(testenv.FreePort(t)), "first: 30160, last: 30161", "first: "+first+", last: "+first)
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("../../docs", path))
		if err != nil {
			t.Fatal(err)
		}
		return ports.Replace(string(data))
	}
	if err := os.MkdirAll(filepath.Join(dir, "docs/samples/storm"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"kp.csv", "site.yaml"} {
		text := strings.Replace(read("samples/storm/"+file), "  ports:", "  service: {type: LoadBalancer} # any port\n  ports:", 1)
		if err := os.WriteFile(filepath.Join(dir, "docs/samples/storm", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testenv.Program(t, "cli"), filepath.Join(dir, "bin/substorm")); err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\ntrap 'kill ${site:-} 2> /dev/null || true; wait' EXIT\n"
	for _, m := range stormBlock.FindAllStringSubmatch(read("tutorials/storm.md"), -1) {
		script += m[1]
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", script)
	c.WaitDelay = time.Second // its program has its output
	c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := c.CombinedOutput()
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "storm/site.log"))
		t.Fatalf("%v\n%s\nthe Site said:\n%s", err, out, said)
	}
	told := stormTold.FindStringSubmatch(read("tutorials/storm.md"))
	if told == nil {
		t.Fatal("the tutorial does not show what the replay prints")
	}
	for line := range strings.Lines(told[1]) {
		if line != "…\n" && !strings.Contains(string(out), line) {
			t.Errorf("the replay does not print %s", line)
		}
	}
	for _, want := range []string{`"level":"severe"`, `"why":"Kp 7.7 (recorded) ≥ 7"`, `"quantity":"Kp"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tutorial does not show %s:\n%s", want, out)
		}
	}
	if picture, err := os.ReadFile(filepath.Join(dir, "storm/storm.svg")); err != nil || !strings.Contains(string(picture), "17 Mar") {
		t.Errorf("the picture: %v", err)
	}
}
