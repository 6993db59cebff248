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

var tutorialBlock = regexp.MustCompile("(?sm)^```sh\n(.*?)^```")

// TestTwoSites runs the commands of docs/tutorials/two-sites.md, with other ports.
func TestTwoSites(t *testing.T) {
	t.Parallel()
	const docs = "../../docs"
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(docs, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var ports []string
	for _, port := range []string{"8081", "8082", "30110", "30120"} {
		ports = append(ports, port, strconv.Itoa(testenv.FreePort(t)))
	}
	ours := strings.NewReplacer(ports...)
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lastPort := regexp.MustCompile(`last: \d+`)
	for _, site := range []string{"kiruna", "thule"} {
		for _, file := range []string{"site.yaml", "partner.yaml"} {
			path := filepath.Join("samples/two-sites", site, file)
			text := ours.Replace(read(path))
			text = strings.Replace(text, "  ports:", "  service: {type: LoadBalancer} # any port\n  ports:", 1)
			if first := regexp.MustCompile(`first: (\d+)`).FindStringSubmatch(text); first != nil {
				text = lastPort.ReplaceAllString(text, "last: "+first[1])
			}
			write(filepath.Join("docs", path), text)
		}
	}
	script := "set -euo pipefail\ntrap 'kill ${kiruna:-} ${thule:-} 2> /dev/null || true; wait' EXIT\n"
	for _, m := range tutorialBlock.FindAllStringSubmatch(ours.Replace(read("tutorials/two-sites.md")), -1) {
		script += m[1]
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testenv.Program(t, "cli"), filepath.Join(dir, "bin/substorm")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", script)
	c.WaitDelay = time.Second // its programs have its output
	c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := c.CombinedOutput()
	if err != nil {
		for _, log := range []string{"kiruna.log", "thule.log"} {
			said, _ := os.ReadFile(filepath.Join(dir, "two-sites", log))
			t.Logf("%s:\n%s", log, said)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	said := string(out)
	for text, times := range map[string]int{
		"clear sky over Kiruna": 1, "snow over Thule": 2, `"origin":"kiruna"`: 1, "CC-BY-4.0": 1, `"name":"thule_camera"`: 1, `"instrument":"camera"`: 1,
		"retracted at": 1, "the lens cap was on": 1, "not of use here": 1, "thule_kiruna": 0, "kiruna_thule": 0,
	} {
		if n := strings.Count(said, text); n < times || times == 0 && n > 0 {
			t.Errorf("%q is said %d times, not %d", text, n, times)
		}
	}
	t.Log(said)
}
