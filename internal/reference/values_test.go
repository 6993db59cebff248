// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values describes the values of the chart in a folder, as values.yaml comments on them and values.schema.json bounds them.
func Values(chart string) (string, error) {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return "", err
	}
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return "", fmt.Errorf("%s: %w", chart, err)
	}
	text, err = os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		return "", err
	}
	v := values{}
	if err := json.Unmarshal(text, &v.schema); err != nil {
		return "", fmt.Errorf("%s: %w", chart, err)
	}
	fmt.Fprintf(&v.out, "# Values of the chart %s\n\n%s", filepath.Base(chart), head("Value", "Type", "Default", "Description"))
	if err := v.mapping("", file.Content[0], v.schema); err != nil {
		return "", fmt.Errorf("%s: %w", chart, err)
	}
	return v.out.String(), nil
}

type values struct {
	schema map[string]any
	out    strings.Builder
}

// mapping writes a row for each key: first the row of a map, then those of its keys.
func (v *values) mapping(path string, node *yaml.Node, schema map[string]any) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		of := v.resolve(child(schema, key.Value))
		comment := comment(key.HeadComment)
		usual, err := inline(value)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		deep := value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0
		if deep {
			usual = ""
		}
		if !deep || comment != "" {
			v.out.WriteString(row(code(at), cell(schemaType(of)), code(usual), comment))
		}
		if deep {
			if err := v.mapping(at, value, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// comment is a comment of values.yaml as a cell, its lines as they are.
func comment(s string) string {
	// Text before an empty line is about the file, or about nothing that follows.
	if i := strings.LastIndex(s, "\n\n"); i >= 0 {
		s = s[i+2:]
	}
	var lines []string
	for _, line := range strings.Split(s, "\n") {
		line = strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
		if trimmed := strings.TrimSpace(line); trimmed != line && trimmed != "" {
			line = "<br>" + code(trimmed) // an indented line is an example
		}
		lines = append(lines, line)
	}
	return cell(strings.Join(lines, " "))
}

// inline is a value in one line.
func inline(node *yaml.Node) (string, error) {
	if node.Kind == yaml.ScalarNode && node.Value == "" {
		return `""`, nil
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return "", err
	}
	if s, ok := value.(string); ok {
		return s, nil
	}
	out, err := json.Marshal(value)
	return string(out), err
}

func child(schema map[string]any, name string) map[string]any {
	properties, _ := schema["properties"].(map[string]any)
	sub, _ := properties[name].(map[string]any)
	return sub
}

// resolve follows a $ref, and one in allOf, which may have more beside it: beside a $ref, draft 7 ignores that.
func (v *values) resolve(schema map[string]any) map[string]any {
	if all, _ := schema["allOf"].([]any); len(all) == 1 {
		only, _ := all[0].(map[string]any)
		return v.resolve(only)
	}
	ref, is := schema["$ref"].(string)
	if !is {
		return schema
	}
	definitions, _ := v.schema["definitions"].(map[string]any)
	to, _ := definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	return v.resolve(to)
}

// schemaType is type and bounds of a value in words.
func schemaType(s map[string]any) string {
	var is []string
	switch t := s["type"].(type) {
	case string:
		is = append(is, t)
	case []any:
		var types []string
		for _, one := range t {
			types = append(types, fmt.Sprint(one))
		}
		is = append(is, strings.Join(types, " or "))
	}
	if enum, ok := s["enum"].([]any); ok {
		var values []string
		for _, one := range enum {
			values = append(values, code(fmt.Sprint(one)))
		}
		is = append(is, "one of "+strings.Join(values, ", "))
	}
	for _, b := range []struct{ key, says string }{{"minimum", "≥ %v"}, {"maximum", "≤ %v"}, {"minLength", "at least %v characters"},
		{"maxLength", "at most %v characters"}, {"minItems", "at least %v items"}} {
		if n, ok := s[b.key]; ok {
			is = append(is, fmt.Sprintf(b.says, n))
		}
	}
	if p, ok := s["pattern"].(string); ok {
		is = append(is, "matches "+strings.ReplaceAll(code(p), `\|`, "|"))
	}
	return strings.Join(is, ", ")
}
