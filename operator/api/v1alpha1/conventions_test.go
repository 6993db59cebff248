// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/substorm/substorm/internal/schematest"
)

// wholeObject are the messages of rules that no single field is at fault of, by their beginnings.
var wholeObject = []string{"tls names a Secret", "expiry has retention, maxSize or whenDiskFull"}

// TestRules: each rule says what is wrong in words, and of which field: one that sits on a struct compares several of them.
func TestRules(t *testing.T) {
	found := 0
	for kind, crd := range schemas(t) {
		rules(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schematest.Path{kind}, func(at schematest.Path, s apiextensionsv1.JSONSchemaProps, rule apiextensionsv1.ValidationRule) {
			found++
			switch {
			case len(strings.Fields(rule.Message)) < 3:
				t.Errorf("%s: the rule %s has the message %q", at, rule.Rule, rule.Message)
			case len(at) == 1: // on the name: the schema of metadata has no fields to point at
			case len(s.Properties) == 0 || rule.FieldPath != "":
			case slices.ContainsFunc(wholeObject, func(begin string) bool { return strings.HasPrefix(rule.Message, begin) }):
			case strings.Contains(rule.Rule, "oldSelf") && strings.HasPrefix(rule.Rule, "self == oldSelf"): // the struct as a whole
			default:
				t.Errorf("%s: the rule %q has no fieldPath, which names the field that is at fault", at, rule.Message)
			}
			if rule.Reason != nil && *rule.Reason == apiextensionsv1.FieldValueInvalid {
				t.Errorf("%s: the rule %q names the reason that is the default", at, rule.Message)
			}
		})
	}
	if found == 0 {
		t.Error("no rule was found")
	}
}

// bound is what the messages of rules say that bound a duration or a quantity: TestBounds looks after these.
var bound = regexp.MustCompile(`(is|are) at most|is at least|is [0-9]+[a-z]* to|longer than nothing|greater than 0|without an exponent|no exponent`)

// shared says whether a rule is of a type that several kinds have, where one of them is enough: pod templates, annotations and TLS.
func shared(at schematest.Path, rule apiextensionsv1.ValidationRule) bool {
	return slices.Contains(at, "podTemplate") || at[len(at)-1] == "annotations" || strings.HasPrefix(rule.Message, "tls names a Secret")
}

// TestEachRuleRefuses: each rule of a spec refuses one of the bad manifests of its kind, so that none can go unnoticed.
func TestEachRuleRefuses(t *testing.T) {
	bad := read(t, "bad")
	for kind, crd := range schemas(t) {
		rules(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schematest.Path{kind}, func(at schematest.Path, _ apiextensionsv1.JSONSchemaProps, rule apiextensionsv1.ValidationRule) {
			if len(at) > 1 && at[1] == "status" || bound.MatchString(rule.Message) {
				return
			}
			if !slices.ContainsFunc(bad, func(m manifest) bool {
				return strings.Contains(rule.Message, m.refused) && (shared(at, rule) || m.objects[len(m.objects)-1].GetKind() == kind)
			}) {
				t.Errorf("%s: no %s in testdata/bad is refused because %q", at, kind, rule.Message)
			}
		})
	}
}

func rules(s apiextensionsv1.JSONSchemaProps, at schematest.Path, f func(schematest.Path, apiextensionsv1.JSONSchemaProps, apiextensionsv1.ValidationRule)) {
	for _, rule := range s.XValidations {
		f(at, s, rule)
	}
	for name, inner := range s.Properties {
		rules(inner, at.To(name), f)
	}
	if s.Items != nil && s.Items.Schema != nil {
		rules(*s.Items.Schema, at.To("[]"), f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		rules(*s.AdditionalProperties.Schema, at.To("{}"), f)
	}
}

// TestKinds: kubectl knows each kind by a short name and in the category substorm, lists those of one Site, and answers the
// first question by itself, and the second with -o wide.
func TestKinds(t *testing.T) {
	short := map[string]string{}
	for kind, crd := range schemas(t) {
		version, names := crd.Spec.Versions[0], crd.Spec.Names
		if len(names.ShortNames) != 1 || short[names.ShortNames[0]] != "" {
			t.Errorf("%s has the short names %q", kind, names.ShortNames)
		} else {
			short[names.ShortNames[0]] = kind
		}
		if !slices.Contains(names.Categories, "substorm") {
			t.Errorf("%s has the categories %q", kind, names.Categories)
		}
		parent := ".spec.siteRef.name"
		if kind == "FeedConsumer" {
			parent = ".spec.feedRef.name"
		}
		if kind != "Site" && !slices.ContainsFunc(version.SelectableFields, func(f apiextensionsv1.SelectableField) bool { return f.JSONPath == parent }) {
			t.Errorf("%s cannot be selected by %s", kind, parent)
		}
		var columns, wide []string
		for _, c := range version.AdditionalPrinterColumns {
			if c.Description == "" {
				t.Errorf("%s: the column %s has no description", kind, c.Name)
			}
			if c.Priority == 0 {
				columns = append(columns, c.Name)
			} else {
				wide = append(wide, c.Name)
			}
		}
		for _, name := range []string{"Ready", "Reason", "Age"} {
			if !slices.Contains(columns, name) {
				t.Errorf("%s has no column %s", kind, name)
			}
		}
		if !slices.Contains(wide, "Message") {
			t.Errorf("%s has no column Message with -o wide", kind)
		}
		if len(columns) > 10 {
			t.Errorf("%s has %d columns, more than a terminal shows: let some be for -o wide", kind, len(columns))
		}
	}
}

// TestDescriptions: kubectl explain says something of each field, in sentences.
func TestDescriptions(t *testing.T) {
	for kind, crd := range schemas(t) {
		described(t, *crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schematest.Path{kind})
	}
}

func described(t *testing.T, s apiextensionsv1.JSONSchemaProps, at schematest.Path) {
	t.Helper()
	for name, inner := range s.Properties {
		path := at.To(name)
		if len(strings.Fields(inner.Description)) < 3 && !(len(at) == 1 && name == "metadata") {
			t.Errorf("%s: %q says nothing", path, inner.Description)
		}
		if strings.Contains(inner.Description, "…") {
			t.Errorf("%s: %q leaves the rest to be guessed", path, inner.Description)
		}
		described(t, inner, path)
	}
	if s.Items != nil && s.Items.Schema != nil {
		described(t, *s.Items.Schema, at.To("[]"))
	}
}
