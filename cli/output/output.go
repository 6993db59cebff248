// SPDX-License-Identifier: Apache-2.0

// Package output is -o of the commands that print a listing or a report.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/usage"
)

// Format is what -o says. It is a pflag.Value; the zero value is Table.
type Format string

// The values of Format.
const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

var formats = []string{string(Table), string(Wide), string(JSON), string(YAML)}

// Add adds -o to a command. JSON says what a JSON document is: "one gap per line".
func (f *Format) Add(cmd *cobra.Command, json string) {
	*f = Table
	cmd.Flags().VarP(f, "output", "o", "table, wide (with more columns, where there are more), json ("+json+") or yaml (the same, as documents)")
	usage.OneOf(cmd, "output", formats...)
}

// Set implements pflag.Value.
func (f *Format) Set(text string) error {
	if !slices.Contains(formats, text) {
		return usage.Errorf("choose one of %s", strings.Join(formats, ", "))
	}
	*f = Format(text)
	return nil
}

// String implements pflag.Value.
func (f *Format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// IsData says whether the output is for programs: JSON or YAML.
func (f Format) IsData() bool { return f == JSON || f == YAML }

// Bool is how a table shows a condition, as kubectl does.
func Bool(value bool) string {
	if value {
		return "True"
	}
	return "False"
}

// Each prints a listing: as table does, or each object as a document.
func Each[T any](w io.Writer, f Format, all []T, table func(io.Writer)) error {
	if !f.IsData() {
		return write(w, table)
	}
	out := f.Encoder(w)
	for _, one := range all {
		if err := out.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

// One prints a report: as table does, or as one document, which in JSON is indented.
func One(w io.Writer, f Format, report any, table func(io.Writer)) error {
	switch f {
	case JSON:
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(report)
	case YAML:
		return f.Encoder(w).Encode(report)
	default:
		return write(w, table)
	}
}

// write prints at once what table writes.
func write(w io.Writer, table func(io.Writer)) error {
	var text bytes.Buffer
	table(&text)
	_, err := text.WriteTo(w)
	return err
}

// Columns begins a table. Cells end with a tab, but for the last one of a line; Flush ends it.
func Columns(w io.Writer, titles string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, titles)
	return t
}

// Encoder writes documents: JSON, one per line, or YAML, with --- between them.
type Encoder struct {
	w     io.Writer
	yaml  bool
	begun bool
}

// Encoder returns one that writes to w.
func (f Format) Encoder(w io.Writer) *Encoder { return &Encoder{w: w, yaml: f == YAML} }

// Encode writes a document. In YAML the comment, which is whole lines, stands before it.
func (e *Encoder) Encode(document any, comment ...string) error {
	if !e.yaml {
		out := json.NewEncoder(e.w)
		out.SetEscapeHTML(false)
		return out.Encode(document)
	}
	text, err := yaml.Marshal(document)
	if err != nil {
		return err
	}
	head := strings.Join(comment, "")
	if e.begun {
		head = "---\n" + head
	}
	e.begun = true
	_, err = io.WriteString(e.w, head+string(text))
	return err
}
