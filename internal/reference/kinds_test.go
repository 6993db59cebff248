// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Kind describes a kind: each field of spec and status, as the CustomResourceDefinition in a file has it.
func Kind(path string) (name, page string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	var crd apiextensions.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return "", "", fmt.Errorf("%s: %w", path, err)
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, "# %s\n", crd.Spec.Names.Kind)
	for _, v := range crd.Spec.Versions {
		schema := v.Schema.OpenAPIV3Schema
		fmt.Fprintf(out, "\n%s\n\n`apiVersion: %s/%s`, plural `%s`.\n", paragraphs(schema.Description), crd.Spec.Group, v.Name, crd.Spec.Names.Plural)
		if rules := rules(*schema); rules != "" {
			fmt.Fprintf(out, "\nRules of the whole object: %s.\n", rules)
		}
		fmt.Fprintf(out, "\n## Columns of `kubectl get`\n\n%s", head("Column", "Shows", "Description"))
		for _, c := range v.AdditionalPrinterColumns {
			out.WriteString(row(c.Name, code(c.JSONPath), cell(c.Description)))
		}
		for _, part := range []string{"spec", "status"} {
			p := schema.Properties[part]
			fmt.Fprintf(out, "\n## %s\n\n", part)
			if p.Description != "" {
				fmt.Fprintf(out, "%s\n\n", paragraphs(p.Description))
			}
			if rules := rules(p); rules != "" {
				fmt.Fprintf(out, "Rules: %s.\n\n", rules)
			}
			out.WriteString(head("Field", "Type", "Default", "Bounds", "Description"))
			fields(out, part, p)
		}
	}
	return crd.Spec.Names.Kind, out.String(), nil
}

// paragraphs drops the line breaks inside of paragraphs.
func paragraphs(s string) string {
	var out []string
	for _, p := range strings.Split(s, "\n\n") {
		out = append(out, strings.Join(strings.Fields(p), " "))
	}
	return strings.Join(out, "\n\n")
}

// fields writes a row for each field below path, required ones first, then by name.
func fields(out *strings.Builder, path string, p apiextensions.JSONSchemaProps) {
	required := func(name string) int {
		if slices.Contains(p.Required, name) {
			return 0
		}
		return 1
	}
	names := slices.SortedFunc(maps.Keys(p.Properties), func(a, b string) int {
		if d := required(a) - required(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		field := p.Properties[name]
		at, inner := path+"."+name, field
		for inner.Items != nil || inner.AdditionalProperties != nil {
			if inner.Items != nil {
				at, inner = at+"[]", *inner.Items.Schema
			} else {
				at, inner = at+"{}", *inner.AdditionalProperties.Schema
			}
		}
		var is []string
		if required(name) == 0 {
			is = append(is, "required")
		}
		if b := bounds(field); b != "" {
			is = append(is, b)
		}
		usual := ""
		if field.Default != nil {
			usual = code(string(field.Default.Raw))
		}
		out.WriteString(row(code(at), typeOf(field), usual, strings.Join(is, "; "), cell(field.Description)))
		fields(out, at, inner)
	}
}

// typeOf is the type of a field in words.
func typeOf(p apiextensions.JSONSchemaProps) string {
	switch {
	case p.XIntOrString:
		return "integer or string"
	case p.Items != nil:
		return "list of " + typeOf(*p.Items.Schema)
	case p.AdditionalProperties != nil:
		return "map of " + typeOf(*p.AdditionalProperties.Schema)
	case p.Format != "":
		return p.Type + " (" + p.Format + ")"
	default:
		return p.Type
	}
}

// bounds are what the API server demands of a value, and of the items of a list.
func bounds(p apiextensions.JSONSchemaProps) string {
	var is []string
	add := func(format string, args ...any) { is = append(is, fmt.Sprintf(format, args...)) }
	if len(p.Enum) > 0 {
		var values []string
		for _, v := range p.Enum {
			values = append(values, code(strings.Trim(string(v.Raw), `"`)))
		}
		add("one of %s", strings.Join(values, ", "))
	}
	for _, b := range []struct {
		says  string
		value *int64
	}{{"at least %d characters", p.MinLength}, {"at most %d characters", p.MaxLength}, {"at least %d items", p.MinItems}, {"at most %d items", p.MaxItems},
		{"at least %d properties", p.MinProperties}, {"at most %d properties", p.MaxProperties}} {
		if b.value != nil {
			add(b.says, *b.value)
		}
	}
	if p.Minimum != nil {
		add("≥ %v", *p.Minimum)
	}
	if p.Maximum != nil {
		add("≤ %v", *p.Maximum)
	}
	if p.Pattern != "" {
		add("matches %s", code(p.Pattern))
	}
	if r := rules(p); r != "" {
		add("%s", r)
	}
	if p.Items != nil {
		if b := bounds(*p.Items.Schema); b != "" {
			add("each item: %s", b)
		}
	}
	if p.AdditionalProperties != nil {
		if b := bounds(*p.AdditionalProperties.Schema); b != "" {
			add("each value: %s", b)
		}
	}
	return strings.Join(is, "; ")
}

// rules are the messages of the CEL rules.
func rules(p apiextensions.JSONSchemaProps) string {
	var is []string
	for _, r := range p.XValidations {
		said := cell(r.Message)
		if said == "" {
			said = code(r.Rule)
		}
		is = append(is, said)
	}
	return strings.Join(is, "; ")
}
