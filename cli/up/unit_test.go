// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/up"
)

const packaging = "../../packaging"

// unit copies the unit and some of its drop-ins to a folder, with a program that exists.
func unit(t *testing.T, dropIns ...string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "substorm.service")
	if err := os.Mkdir(file+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"substorm.service"}, dropIns...) {
		text, err := os.ReadFile(filepath.Join(packaging, name))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/substorm"), []byte("/bin/true"))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// exposure is the most that `systemd-analyze security` may find, in tenths: 100 is a service without a sandbox.
const exposure = "15"

var dropIns = map[string][]string{"alone": nil, "with Secrets": {"substorm.service.d/secrets.conf"}, "with low ports": {"substorm.service.d/low-ports.conf"}}

// TestUnit: systemd understands the unit with its drop-ins.
func TestUnit(t *testing.T) {
	needsSystemd(t)
	for name, with := range dropIns {
		out, err := exec.Command("systemd-analyze", "verify", unit(t, with...)).CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestUnitOutlivesMovers: where the kernel ends a mover for want of memory, systemd does not end the Site, and a stop is the Site's to pass on.
func TestUnitOutlivesMovers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(packaging, "substorm.service"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"OOMPolicy=continue", "KillMode=mixed"} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
}

// TestUnitIsASandbox: systemd finds little that the service could do beside its work.
func TestUnitIsASandbox(t *testing.T) {
	needsSystemd(t)
	out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+exposure, unit(t)).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func needsSystemd(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze on this machine")
	}
}

// TestUnitCommand: the program takes the flags that the unit and its drop-ins name.
func TestUnitCommand(t *testing.T) {
	commands := 0
	for _, with := range dropIns {
		for _, name := range append([]string{"substorm.service"}, with...) {
			text, err := os.ReadFile(filepath.Join(packaging, name))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				command, is := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=/usr/local/bin/substorm ")
				if !is {
					continue
				}
				commands++
				c := up.Command()
				words := strings.Fields(command)
				if words[0] != c.Name() {
					t.Errorf("%s runs %q", name, command)
				} else if err := c.ParseFlags(words[1:]); err != nil || c.Flags().NArg() > 0 {
					t.Errorf("%s runs %q: %v, arguments %q", name, command, err, c.Flags().Args())
				}
			}
		}
	}
	if commands < 2 {
		t.Errorf("found %d commands", commands)
	}
}
