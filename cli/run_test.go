// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/usage"
)

func runProgram(t *testing.T, program string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	err := Run(t.Context(), Config{Program: program, Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	if err != nil {
		fmt.Fprintln(&errs, "error:", err)
	}
	return out.String(), errs.String(), usage.ExitCode(err)
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":               {[]string{"--help"}, 0, ""},
		"nothing":            {nil, 0, ""},
		"version":            {[]string{"version"}, 0, ""},
		"an unknown command": {[]string{"sned"}, 2, "did you mean send?"},
		"an unknown flag":    {[]string{"send", "--too", "x:1", "f"}, 2, "--help"},
		"no server":          {[]string{"send", "f"}, 2, "--to"},
		"a bad server":       {[]string{"send", "--to", "x", "f"}, 2, "host:port"},
		"a port of no TCP":   {[]string{"send", "--to", "x:70000", "f"}, 2, "65535"},
		"nobody at work":     {[]string{"send", "--to", "x:1", "--parallel", "0", "f"}, 2, "--parallel"},
		"no Instrument":      {[]string{"send", "--to", "http://x:1/", "f"}, 2, "/in/INSTRUMENT/"},
		"a token in plain":   {[]string{"send", "--to", "http://x:1/in/sky/", "--token-file", "t", "f"}, 2, "https://"},
		"a name over TCP":    {[]string{"send", "--to", "x:1", "--name-from", "base", "f"}, 2, "HTTP"},
		"framing over HTTP":  {[]string{"send", "--to", "http://x:1/in/sky/", "--framing", "until-close", "f"}, 2, "--framing"},
		"a rate of nothing":  {[]string{"send", "--to", "x:1", "--rate", "NaN", "f"}, 2, "--rate"},
		"no address":         {[]string{"send", "--to", "x:1", "--from", "300.1.1.1", "f"}, 2, "--from"},
		"no day":             {[]string{"archive", "ls", "--day", "foo"}, 2, "UTC day"},
		"days reversed":      {[]string{"archive", "ls", "--since", "2026-11-21", "--until", "2026-11-20"}, 2, "comes after"},
		"no format":          {[]string{"status", "-o", "foo"}, 2, "json"},
		"a missing file":     {[]string{"send", "--to", "127.0.0.1:1", "no-such-file"}, 1, "no-such-file"},
		"too many arguments": {[]string{"archive", "get", "a", "b"}, 2, "--help"},
	} {
		_, stderr, code := runProgram(t, "/usr/bin/substorm", c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, want %d; said %q, want %q in it", name, code, c.code, stderr, c.says)
		}
	}
	for err, want := range map[error]int{nil: 0, errors.New("x"): 1, fmt.Errorf("stopped: %w", context.Canceled): 130} {
		if got := usage.ExitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

// TestInterrupted: Ctrl-C ends a command, which says how far it was.
func TestInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	file := filepath.Join(t.TempDir(), "frame")
	if err := os.WriteFile(file, []byte("frame"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := silent.Accept(); err == nil { // the object is on its way
			cancel()
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	var out, errs bytes.Buffer
	err = Run(ctx, Config{Program: "substorm", Args: []string{"send", "--to", silent.Addr().String(), file}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	if usage.ExitCode(err) != 130 || !strings.Contains(err.Error(), "interrupted: 0 objects were received, 1 were on their way") {
		t.Errorf("exit code %d: %v\n%s", usage.ExitCode(err), err, errs.String())
	}
}

// TestPlugin: under kubectl's name for plugins, help speaks of kubectl substorm.
func TestPlugin(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/local/bin/kubectl-substorm": "kubectl substorm status", `kubectl-substorm.exe`: "kubectl substorm status",
		"./substorm": "substorm status",
	} {
		out, _, code := runProgram(t, program, "status", "--help")
		if code != 0 || !strings.Contains(out, "Usage:\n  "+want) {
			t.Errorf("%s: exit code %d\n%s", program, code, out)
		}
	}
}

// TestFlagsMeanTheSame: a flag's name has one type, one noun and one letter in all commands, and a letter belongs to one flag.
func TestFlagsMeanTheSame(t *testing.T) {
	may := map[string]string{
		"instrument": "the archive's commands take several, import and adopt work for one",
		"watch":      "send takes the folders that it follows, status follows the Site",
		"file":       "up takes several files and folders, others one file",
	}
	names, letters := map[string]string{}, map[string]string{}
	same := func(known map[string]string, key, is, where string) {
		if was, there := known[key]; there && was != is {
			t.Errorf("%s of %s is %q, and elsewhere %q", key, where, is, was)
		}
		known[key] = is
	}
	kubectls := []string{"get", "apply", "delete"} // their flags mean what kubectl's do
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		if slices.Contains(kubectls, c.Name()) && c.Parent() == c.Root() {
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			noun, _ := pflag.UnquoteUsage(f)
			if may[f.Name] == "" {
				same(names, f.Name, fmt.Sprintf("%s %s, -%s", f.Value.Type(), noun, f.Shorthand), c.CommandPath())
			}
			if f.Shorthand != "" {
				same(letters, f.Shorthand, f.Name, c.CommandPath())
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(false))
	if len(names) < 80 || letters["o"] != "output" {
		t.Errorf("looked at %d flags, with %d letters", len(names), len(letters))
	}
}

// TestEveryCommandExplainsItself: a line, a text or an example for each, and each flag says what it does.
func TestEveryCommandExplainsItself(t *testing.T) {
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" || c.Hidden {
			return
		}
		if c.Short == "" {
			t.Errorf("%s has no line of its own", c.CommandPath())
		}
		if c.Runnable() && c.HasParent() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	root := newRoot(false)
	look(root)
	out, _, code := runProgram(t, "substorm", "completion", "bash")
	if code != 0 || !strings.Contains(out, "__start_substorm") {
		t.Errorf("completion: exit code %d", code)
	}
}
