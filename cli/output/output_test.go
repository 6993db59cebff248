// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
)

type gap struct {
	Name    string `json:"name"`
	Missing uint64 `json:"missing"`
}

// TestFormats: what each format prints of a listing and of a report.
func TestFormats(t *testing.T) {
	for args, want := range map[string]string{
		"":        "the table\nthe table\n",
		"-otable": "the table\nthe table\n",
		"-owide":  "the table\nthe table\n",
		"-ojson":  `{"name":"a","missing":18446744073709551615}` + "\n" + `{"name":"b","missing":2}` + "\n" + "{\n  \"name\": \"c\",\n  \"missing\": 0\n}\n",
		"-oyaml":  "missing: 18446744073709551615\nname: a\n---\nmissing: 2\nname: b\nmissing: 0\nname: c\n",
	} {
		var out bytes.Buffer
		table := func(w io.Writer) { fmt.Fprintln(w, "the table") }
		var f Format
		cmd := &cobra.Command{Use: "gaps", RunE: func(*cobra.Command, []string) error {
			return errors.Join(Each(&out, f, []gap{{"a", 1<<64 - 1}, {"b", 2}}, table), One(&out, f, gap{Name: "c"}, table))
		}}
		f.Add(cmd, "one gap per line")
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

// TestComment: a comment stands before its document, in YAML alone.
func TestComment(t *testing.T) {
	for f, want := range map[Format]string{YAML: "# first\nname: a\n---\n# second\nname: b\n", JSON: `{"name":"a"}` + "\n" + `{"name":"b"}` + "\n"} {
		var out bytes.Buffer
		e := f.Encoder(&out)
		if err := errors.Join(e.Encode(map[string]string{"name": "a"}, "# first\n"), e.Encode(map[string]string{"name": "b"}, "# second\n")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f, diff)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	var f Format
	if err := f.Set("xml"); usage.ExitCode(err) != 2 || !strings.Contains(err.Error(), "table, wide, json, yaml") {
		t.Errorf("%v, exit code %d", err, usage.ExitCode(err))
	}
}
