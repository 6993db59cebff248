// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command describes a program: each of its commands with flags and examples. The text after the title says more about it.
func Command(root *cobra.Command, text string) (string, error) {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "# Command line of %s\n\n", root.Name())
	if text != "" {
		fmt.Fprintf(out, "%s\n\n", text)
	}
	if err := describe(root, out); err != nil {
		return "", err
	}
	return out.String(), nil
}

func describe(c *cobra.Command, out *bytes.Buffer) error {
	c.DisableAutoGenTag = true
	page := &bytes.Buffer{}
	anchor := func(file string) string {
		return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
	}
	if err := doc.GenMarkdownCustom(c, page, anchor); err != nil {
		return err
	}
	// Headings of the parts of a command are no anchors: every command has the same.
	text := page.String()
	for _, part := range []string{"Synopsis", "Examples", "Options", "Options inherited from parent commands", "SEE ALSO"} {
		text = strings.Replace(text, "\n### "+part+"\n", "\n**"+part+"**\n", 1)
	}
	text = strings.Replace(text, "**SEE ALSO**", "**See also**", 1)
	if _, err := out.WriteString(strings.TrimRight(text, "\n") + "\n\n"); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := describe(sub, out); err != nil {
			return err
		}
	}
	return nil
}
