// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/schematest"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestBounds: each duration and each quantity that our types declare has rules that say how
// great and how small it may be, and each time a pattern. Without them the API server takes
// what Go cannot read.
func TestBounds(t *testing.T) {
	found := 0
	for kind, crd := range schemas(t) {
		object, err := v1alpha1Scheme().New(v1alpha1.GroupVersion.WithKind(kind))
		if err != nil {
			t.Fatal(err)
		}
		root := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		delete(root.Properties, "metadata")
		bounded(root, reflect.TypeOf(object).Elem(), schematest.Path{kind}, func(at schematest.Path, s apiextensionsv1.JSONSchemaProps, bound *regexp.Regexp) {
			found++
			for _, rule := range s.XValidations {
				if bound != nil && bound.MatchString(rule.Rule) {
					return
				}
			}
			if bound == nil && s.Pattern == "" {
				t.Errorf("%s has no pattern: the API server takes times that Go does not, with a small t say", at)
			} else if bound != nil {
				t.Errorf("%s has no rule that matches %s: give it a +kubebuilder:validation:XValidation that says how great or small it may be", at, bound)
			}
		})
	}
	if found == 0 {
		t.Error("no duration and no quantity was found")
	}
}

// What rules have that bound a duration and a quantity.
var (
	upperDuration = regexp.MustCompile(`duration\(self\) <= duration\(`)
	lowerDuration = regexp.MustCompile(`duration\(self\) >=? duration\(`)
	upperQuantity = regexp.MustCompile(`!quantity\((string\(self\)|self)\)\.isGreaterThan\(`)
	lowerQuantity = regexp.MustCompile(`!quantity\((string\(self\)|self)\)\.isLessThan\(|(^|[^!])quantity\((string\(self\)|self)\)\.isGreaterThan\(`)
	noExponent    = regexp.MustCompile(`!string\(self\)\.matches\('e\|E'\)`) // one may take the program all its memory and time
)

// bounded calls found for every duration, quantity and time, but for those of conditions,
// which are Kubernetes' own.
func bounded(s apiextensionsv1.JSONSchemaProps, of reflect.Type, at schematest.Path, found func(schematest.Path, apiextensionsv1.JSONSchemaProps, *regexp.Regexp)) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of == reflect.TypeFor[metav1.Duration]():
		found(at, s, upperDuration)
		found(at, s, lowerDuration)
	case of == reflect.TypeFor[resource.Quantity]():
		found(at, s, upperQuantity)
		found(at, s, lowerQuantity)
		found(at, s, noExponent)
	case of == reflect.TypeFor[metav1.Time]():
		found(at, s, nil)
	case of == reflect.TypeFor[metav1.Condition]():
	case of.Kind() == reflect.Slice && s.Items != nil:
		bounded(*s.Items.Schema, of.Elem(), at.To("[]"), found)
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if inner, ok := s.Properties[name]; ok {
				bounded(inner, field.Type, at.To(name), found)
			}
		}
	}
}

// TestNoBooleans: no value of an enumeration is something else than a text to a reader of
// YAML 1.1, as many are: On and Off are booleans there.
func TestNoBooleans(t *testing.T) {
	for kind, crd := range schemas(t) {
		for _, leaf := range schematest.Leaves(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schematest.Path{kind}) {
			for _, value := range leaf.Schema.Enum {
				var text string
				if leaf.Schema.Type != "string" || yaml.Unmarshal(value.Raw, &text) != nil {
					continue // a number
				}
				if strings.HasSuffix(leaf.Path.String(), "conditions[].status") {
					continue // metav1.Condition's
				}
				var read any
				if err := yaml.Unmarshal([]byte(text), &read); err != nil || read != text {
					t.Errorf("%s: %s is %v to YAML: %v", leaf.Path, text, read, err)
				}
			}
		}
	}
}
