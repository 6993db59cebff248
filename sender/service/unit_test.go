// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/usage"
)

var update = flag.Bool("update", false, "write golden files anew")

var specs = map[string]Spec{
	"user-of-its-own": {
		Name: "substorm-send", Program: "/usr/local/bin/substorm-send", Queue: "/var/lib/substorm-send", Watch: []string{"/data/spectra"},
		Args: []string{"--to", "node1:30103,node2:30103", "--framing", "length-prefixed", "--watch", "/data/spectra", "--queue", "/var/lib/substorm-send", "--newest-first", "--max-rate", "25k"},
	},
	"reads-a-token": {
		Name: "substorm-send", Program: "/usr/local/bin/substorm-send", Queue: "/var/lib/substorm-send", Watch: []string{"/data"},
		Args:    []string{"--to", "https://gw/in/a/", "--token-file", "/etc/substorm/a token", "--tls-key=/etc/substorm/key", "--watch", "/data", "--queue", "/var/lib/substorm-send"},
		Secrets: []string{"/etc/substorm/a token", "/etc/substorm/key"},
	},
	"takes-files-away": {
		Name: "substorm-send-camera", User: "camera", Program: "/opt/substorm tools/substorm", Queue: "/data/queue", Watch: []string{"/data/frames 100%", "/data/$more"}, Move: true,
		Args: []string{"send", "--to", "gw:30101", "--take", "move", "--watch", "/data/frames 100%", "--watch", "/data/$more", "--queue", "/data/queue", "--ignore", `"*.\d"`},
	},
}

// TestUnit compares the generated systemd units; `go test -update` rewrites the golden files.
func TestUnit(t *testing.T) {
	for name, s := range specs {
		t.Run(name, func(t *testing.T) {
			unit, err := s.Unit()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".service")
			if *update {
				if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), unit); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSystemdUnderstands: systemd itself finds nothing wrong with the units, and
// reads the arguments as they were meant.
func TestSystemdUnderstands(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze on this machine")
	}
	for name, s := range specs {
		t.Run(name, func(t *testing.T) {
			s.Program = "/bin/true" // it must exist
			if s.User != "" {
				s.User = "root" // so must the user
			}
			s.Name = "substorm-test-" + name
			unit, err := s.Unit()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), s.Name+".service")
			if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("systemd-analyze", "verify", file).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("%v: %s\n%s", err, out, unit)
			}
		})
	}
}

func TestWhatCannotWork(t *testing.T) {
	good := specs["user-of-its-own"]
	for says, change := range map[string]func(*Spec){
		"--name":          func(s *Spec) { s.Name = "../etc" },
		"not the name of": func(s *Spec) { s.User = "a b" },
		"--watch":         func(s *Spec) { s.Watch = nil },
		"--queue":         func(s *Spec) { s.Queue = "" },
		"line break":      func(s *Spec) { s.Args = append(s.Args, "a\nExecStart=/bin/sh") },
		"may remove":      func(s *Spec) { s.Move = true },
		"its owner":       func(s *Spec) { s.Queue = "/data/queue" },
		"below":           func(s *Spec) { s.Queue = "/var/lib/../../data" },
	} {
		s := good
		change(&s)
		if unit, err := s.Unit(); !errors.As(err, new(usage.Error)) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n%s", says, err, unit)
		}
	}
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := Command([]string{"send"}, func(args []string) (Sender, error) {
		return Sender{Queue: args[0], Watch: args[1:]}, nil
	})
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceUsage, c.SilenceErrors = true, true
	err := c.Execute()
	return out.String(), err
}

// TestInstall: the unit file is written, and gone again.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "substorm-send-x.service")
	where := []string{"--no-start", "--unit-dir", dir, "--name", "substorm-send-x"}
	printed, err := run(t, "print", "--name", "substorm-send-x", "--", "/var/lib/q", "/data")
	if err != nil || !strings.Contains(printed, "ExecStart="+os.Args[0]+" send /var/lib/q /data\n") {
		t.Fatalf("%v\n%s", err, printed)
	}
	for range 2 {
		if out, err := run(t, append(append([]string{"install"}, where...), "--", "/var/lib/q", "/data")...); err != nil || !strings.Contains(out, file) {
			t.Fatalf("%v\n%s", err, out)
		}
		if written, err := os.ReadFile(file); err != nil || string(written) != printed {
			t.Fatalf("%v\n%s", err, written)
		}
	}
	if out, err := run(t, append([]string{"uninstall"}, where...)...); err != nil || !strings.Contains(out, "queue stays") {
		t.Fatalf("%v\n%s", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := run(t, append([]string{"uninstall"}, where...)...); err == nil {
		t.Error("removed twice")
	}
	if _, err := run(t, append(append([]string{"install"}, where...), "--", "queue", "/data")...); !errors.As(err, new(usage.Error)) {
		t.Errorf("a relative queue: %v", err)
	}
}
