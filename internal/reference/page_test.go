// SPDX-License-Identifier: Apache-2.0

package reference

import "strings"

// cell is text as a cell of a Markdown table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// code is text as code in a cell of a Markdown table, or nothing.
func code(s string) string {
	if s == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + cell(s) + " " + fence
	}
	return fence + cell(s) + fence
}

// row is a row of a Markdown table.
func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// head is the head of a Markdown table.
func head(names ...string) string {
	return row(names...) + strings.Repeat("| --- ", len(names)) + "|\n"
}
