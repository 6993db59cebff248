// SPDX-License-Identifier: Apache-2.0

// Package schematest makes values for the fields of a CRD's schema that no person would write: tests give them to a real API
// server, and see what becomes of those that it takes.
package schematest

import (
	"encoding/json"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Path leads to a field; "[]" is an item of a list, "{}" a value of a map.
type Path []string

// String is the path as documentation writes it.
func (p Path) String() string { return strings.ReplaceAll(strings.Join(p, "."), ".[]", "[]") }

// Leaf is a field that holds a value, or a list or map as a whole.
type Leaf struct {
	Path   Path
	Schema apiextensionsv1.JSONSchemaProps
}

// Leaves walks a schema.
func Leaves(s apiextensionsv1.JSONSchemaProps, at Path) []Leaf {
	var all []Leaf
	switch {
	case s.Type == "array":
		all = append(all, Leaf{at, s})
		all = append(all, Leaves(*s.Items.Schema, at.To("[]"))...)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		all = append(all, Leaf{at, s})
		all = append(all, Leaves(*s.AdditionalProperties.Schema, at.To("{}"))...)
	case len(s.Properties) > 0:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			all = append(all, Leaves(s.Properties[name], at.To(name))...)
		}
	default:
		all = append(all, Leaf{at, s})
	}
	return all
}

// To leads one field further.
func (p Path) To(name string) Path { return append(slices.Clone(p), name) }

// Has reports whether an object has a value there.
func Has(object any, at Path) bool {
	if len(at) == 0 {
		return object != nil
	}
	inside, ok := step(object, at)
	return ok && Has(inside, at[1:])
}

// step goes to the first member of a path; of a list's items to the one that has the rest
// of it, if any has.
func step(object any, at Path) (any, bool) {
	switch o := object.(type) {
	case []any:
		if at[0] != "[]" || len(o) == 0 {
			return nil, false
		}
		if i := slices.IndexFunc(o, func(item any) bool { return Has(item, at[1:]) }); i >= 0 {
			return o[i], true
		}
		return o[0], true
	case map[string]any:
		if at[0] != "{}" {
			inside, ok := o[at[0]]
			return inside, ok
		}
		for _, inside := range o {
			return inside, true
		}
	}
	return nil, false
}

// Set replaces a value; it reports whether what it lies in is there.
func Set(object any, at Path, value any) bool {
	if len(at) > 1 {
		if inside, ok := step(object, at); ok {
			return Set(inside, at[1:], value)
		}
		m, ok := object.(map[string]any)
		if !ok || at[0] == "{}" {
			return false
		}
		inside := container(at[1:])
		m[at[0]] = inside
		return Set(inside, at[1:], value)
	}
	switch o := object.(type) {
	case []any:
		if len(o) == 0 || at[0] != "[]" {
			return false
		}
		o[0] = value
	case map[string]any:
		name := at[0]
		if name == "{}" {
			name = "a"
		}
		o[name] = value
	default:
		return false
	}
	return true
}

// container is what the rest of a path begins in.
func container(rest Path) any {
	if rest[0] == "[]" {
		return []any{map[string]any{}}
	}
	return map[string]any{}
}

// Fill sets a value, and beside it, on the way there, all that is required.
func Fill(object map[string]any, properties map[string]apiextensionsv1.JSONSchemaProps, at Path, value any) {
	s := properties[at[0]]
	object[at[0]] = filled(s, at[1:], value)
}

func filled(s apiextensionsv1.JSONSchemaProps, rest Path, value any) any {
	if len(rest) == 0 {
		return value
	}
	switch rest[0] {
	case "[]":
		return []any{filled(*s.Items.Schema, rest[1:], value)}
	case "{}":
		return map[string]any{"a": filled(*s.AdditionalProperties.Schema, rest[1:], value)}
	}
	object := Plausible(apiextensionsv1.JSONSchemaProps{Properties: s.Properties, Required: s.Required})[0].(map[string]any)
	Fill(object, s.Properties, rest, value)
	return object
}

// Plausible returns values that a field may well take.
func Plausible(s apiextensionsv1.JSONSchemaProps) []any {
	switch {
	case len(s.Enum) > 0:
		var all []any
		for _, one := range s.Enum {
			all = append(all, json.RawMessage(one.Raw))
		}
		return all
	case s.XIntOrString:
		return []any{"1Gi", "1Mi", "64Ki"}
	case s.Type == "array":
		return []any{[]any{Plausible(*s.Items.Schema)[0]}}
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return []any{map[string]any{"a": Plausible(*s.AdditionalProperties.Schema)[0]}}
	case s.Type == "integer":
		return []any{1, 100, 1000, 4000}
	case s.Type == "boolean":
		return []any{true}
	case s.Type == "string" && s.Format == "date-time":
		return []any{"2026-11-22T12:00:00Z"}
	case s.Type == "string":
		return matching(patternOf(s), append([]any{"1h", "24h", "a", "1", "192.0.2.0/24"}, generated(patternOf(s))...))
	default:
		object := map[string]any{}
		for _, name := range s.Required {
			object[name] = Plausible(s.Properties[name])[0]
		}
		return []any{object}
	}
}

// matchRule is a rule that is a pattern with a message.
var matchRule = regexp.MustCompile(`^self\.matches\(r?'([^']*)'\)$`)

// patternOf returns the pattern of a text, which may stand in a rule; empty for none.
func patternOf(s apiextensionsv1.JSONSchemaProps) string {
	for _, rule := range s.XValidations {
		if m := matchRule.FindStringSubmatch(rule.Rule); m != nil && s.Pattern == "" {
			return m[1]
		}
	}
	return s.Pattern
}

// matching are the texts that a pattern takes.
func matching(pattern string, texts []any) []any {
	re := regexp.MustCompile(pattern)
	return slices.DeleteFunc(texts, func(text any) bool { return !re.MatchString(text.(string)) })
}

// conforming leaves out the texts that pattern and length refuse: that the API server looks
// at these is not ours to test.
func conforming(s apiextensionsv1.JSONSchemaProps, texts []any) []any {
	return slices.DeleteFunc(matching(patternOf(s), texts), func(text any) bool {
		return s.MaxLength != nil && int64(len(text.(string))) > *s.MaxLength || s.MinLength != nil && int64(len(text.(string))) < *s.MinLength
	})
}

// Absurd returns nonsensical values, of the field's type and of others.
func Absurd(s apiextensionsv1.JSONSchemaProps) []any {
	long := strings.Repeat("9", 400)
	numbers := []any{-1, json.Number("2147483648"), json.Number("9223372036854775808"), json.Number("1e400"), json.Number("1.5")}
	texts := []any{"", "1d", long, "-1h", "1h-1h", "99999999999999999999m", "2562048h", "9223372036854775808ms"}
	times := []any{"2016-12-31T23:59:60Z", "10000-01-01T00:00:00Z", "2020-01-01t00:00:00z", "2020-01-01T00:00:00+24:00",
		"2020-01-01T00:00:00+99:99", "2020-01-01T00:00:00-25:00", "2020-01-01T00:00:00+23:60",
		"2020-01-01T00:00:00,5Z", "2020-02-30T00:00:00Z", "2020-01-01", "2020-01-01T00:00Z", "2020-01-01 00:00:00Z"}
	quantities := []any{"", "1e99999999999", "1e-99999999999", "1e1.5", "-1Gi", "9999999999999999999Ei", "1n", long}
	switch {
	case s.XIntOrString:
		return slices.Concat(numbers, quantities, []any{nil, map[string]any{"a": "b"}})
	case s.Type == "integer":
		return numbers
	case s.Type == "string" && s.Format == "date-time":
		return conforming(s, times)
	case len(s.Enum) > 0:
		return []any{""}
	case s.Type == "string" && s.Pattern == "" && len(s.XValidations) == 0:
		return []any{"1d", long} // all texts are alike here
	case s.Type == "string":
		return conforming(s, append(texts, generated(patternOf(s))...))
	case s.Type == "array":
		return []any{slices.Repeat(Plausible(*s.Items.Schema)[:1], 300)}
	default:
		return []any{nil}
	}
}

// generated returns strings of a pattern that no person would write: with digits without
// end, and the least and greatest of each class of characters.
func generated(pattern string) []any {
	if pattern == "" {
		return nil
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		panic(err)
	}
	var all []any
	for _, greatest := range []bool{false, true} {
		for _, times := range [][2]int{{1, 1}, {20, 1}, {1, 20}} {
			if one := (generator{greatest, times[0], times[1]}).of(re); !slices.Contains(all, any(one)) {
				all = append(all, one)
			}
		}
	}
	return all
}

type generator struct {
	greatest     bool
	inner, outer int
}

func (g generator) of(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		return string(g.class(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "~"
	case syntax.OpCapture:
		return g.of(re.Sub[0])
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(g.of(sub))
		}
		return b.String()
	case syntax.OpAlternate:
		if g.greatest {
			return g.of(re.Sub[len(re.Sub)-1])
		}
		return g.of(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return strings.Repeat(g.of(re.Sub[0]), g.times(re.Sub[0]))
	case syntax.OpQuest:
		if g.greatest {
			return g.of(re.Sub[0])
		}
		return ""
	case syntax.OpRepeat:
		times := re.Min
		if g.greatest {
			times = re.Max
		}
		if re.Max < 0 {
			times = max(re.Min, g.times(re.Sub[0]))
		}
		return strings.Repeat(g.of(re.Sub[0]), times)
	default:
		return "" // ^, $ and the like
	}
}

// class prefers the digits of a class: no other character makes a number too great.
func (g generator) class(ranges []rune) rune {
	for i := 0; i < len(ranges); i += 2 {
		if g.greatest && ranges[i] <= '9' && ranges[i+1] >= '9' {
			return '9'
		}
	}
	if g.greatest {
		return min(ranges[len(ranges)-1], '~')
	}
	return max(ranges[0], '!')
}

func (g generator) times(sub *syntax.Regexp) int {
	if sub.Op == syntax.OpCharClass || sub.Op == syntax.OpLiteral {
		return g.inner
	}
	return g.outer
}
