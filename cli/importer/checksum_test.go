// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// TestChecksumsOfCoreutils: what sha256sum writes is read, whatever the names.
func TestChecksumsOfCoreutils(t *testing.T) {
	dir := t.TempDir()
	names := []string{"plain", "with  two spaces", "*star", `back\slash`, "line\nend", "carriage\rreturn", "(a) = b", "SHA256 (x) = y", "æøå", "#hash", `\`}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("body of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, flags := range [][]string{{}, {"--binary"}, {"--tag"}} {
		for _, prefix := range []string{"", "./", dir + "/"} {
			args := append(append([]string{}, flags...), "--")
			for _, name := range names {
				args = append(args, prefix+name)
			}
			cmd := exec.Command("sha256sum", args...)
			cmd.Dir = dir
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			c, err := readChecksums(strings.NewReader(string(out)), dir)
			if err != nil {
				t.Fatalf("sha256sum %q: %v\n%s", flags, err, out)
			}
			for _, name := range names {
				if digest, found := c.lookUp(name); !found || digest != sha256.Sum256([]byte("body of "+name)) {
					t.Errorf("sha256sum %q of %q: %v, %v\n%s", flags, prefix+name, digest, found, out)
				}
			}
			if _, found := c.lookUp("another"); found {
				t.Error("it knows a name that is not there")
			}
		}
	}
}

func TestChecksumFiles(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for text, says := range map[string]string{
		a + "  x\n" + b + "  y\n":         "",
		"# a comment\n\n" + a + "  x\r\n": "",
		strings.ToUpper(a) + "  x":        "",
		a + "  x\n" + a + "  x\n":         "",
		a + "  x\n" + b + "  ./x\n":       "two digests",
		a + " x":                          "line 1",
		a + "  x\n" + a[:63] + "  y":      "line 2",
		a + "  ":                          "line 1",
		a:                                 "line 1",
		"SHA256 (x) " + a:                 "line 1",
		"MD5 (x) = " + a[:32]:             "line 1",
		`\` + a + `  x\q`:                 "line 1",
		`\` + a + `  x\`:                  "line 1",
		strings.Repeat("x", 70_000):       "line 1",
	} {
		_, err := readChecksums(strings.NewReader(text), "")
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("%.80q: %v, want %q", text, err, says)
		}
	}
	c, err := readChecksums(strings.NewReader(a+"  x\n"+b+"  y\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	c.lookUp("x")
	for range 2 { // each is missing once
		for line, err := range c.missing(strings.NewReader(a+"  x\n"+b+"  y\n"), "") {
			if line.name != "y" || line.number != 2 || err != nil {
				t.Errorf("missing: %+v, %v", line, err)
			}
		}
	}
	if !c.met[0] || !c.met[1] {
		t.Error("nothing was missing")
	}
}

// A line is refused, or says what sha256sum would have written.
func FuzzChecksumLine(f *testing.F) {
	digest := strings.Repeat("0123456789abcdef", 4)
	for _, seed := range []string{"", "# x", digest + "  a/b", digest + " *a", `\` + digest + `  a\nb\\c\r`, "SHA256 (a) = " + digest, `\SHA256 (a\nb) = ` + digest, digest} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		name, got, err := parseChecksumLine(line)
		if err != nil {
			if !errors.Is(err, ErrChecksumLine) || name != "" || got != (wire.Digest{}) {
				t.Fatalf("%q: %q, %v, %v", line, name, got, err)
			}
			return
		}
		if name == "" {
			return
		}
		escaped := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
		again := fmt.Sprintf("%s  %s", got, escaped)
		if escaped != name {
			again = `\` + again
		}
		if n, d, err := parseChecksumLine(again); n != name || d != got || err != nil {
			t.Fatalf("%q is %q, %v; written as %q it is %q, %v, %v", line, name, got, again, n, d, err)
		}
	})
}
