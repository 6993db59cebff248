// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/crds"
)

// plainer are parts of an API server's errors that are of no use to who wrote the manifest, and what stands in their place.
var plainer = []struct {
	part *regexp.Regexp
	by   string
}{
	// The server repeats the whole object of a patch with an unknown field.
	{regexp.MustCompile(`(?s)The request is invalid: patch: Invalid value: .*: strict decoding error: `), ""},
	{regexp.MustCompile(`(?s)patch: Invalid value: .*: strict decoding error: `), ""},
	{regexp.MustCompile(`(\n\* |,? ?)<nil>: Invalid value: (null|"null"): ` +
		`some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`), ""},
	{regexp.MustCompile(`\nensure CRDs are installed first`), ""},
	// kubectl repeats the patch and the object.
	{regexp.MustCompile(`(?s)error when applying patch:\n.*?\nfor: "[^"]*": error when patching "([^"]*)": +("" is invalid: )?`), "$1: "},
	{regexp.MustCompile(`resource mapping not found for name: "([^"]*)" namespace: "[^"]*" from "([^"]*)": no matches for kind "([^"]*)" in version "([^"]*)"`),
		`$2: "$1": there is no kind $3 of $4: substorm.dev/v1alpha1 has ` + strings.Join(kinds, ", ")},
	// A number or a boolean where text belongs: 20 for 20s, no for "no".
	{regexp.MustCompile(`expected string, got &value\.valueUnstructured\{Value:([^}]*)\}`), `expected text, got $1: put it in quotes, and a duration or a size has a unit, such as "20s"`},
	{regexp.MustCompile(`Invalid value: "(integer|number|boolean)": \S+ in body must be of type string: "\w+"`),
		`expected text, got $1: put it in quotes, and a duration or a size has a unit, such as "20s"`},
	{regexp.MustCompile(`&value\.valueUnstructured\{Value:([^}]*)\}`), "$1"},
}

// kinds are ours.
var kinds = []string{"Site", "IngestGateway", "FeedServer", "Instrument", "Feed", "FeedConsumer", "MirrorPartner"}

// Plain is an error of an API server without what is of no use to who wrote the manifest.
func Plain(message string) string {
	for _, p := range plainer {
		message = p.part.ReplaceAllString(message, p.by)
	}
	return required.ReplaceAllStringFunc(message, func(one string) string {
		m := required.FindStringSubmatch(one)
		kind := invalid.FindStringSubmatch(message)
		if kind == nil {
			return one
		}
		return Hint(kind[1], m[1], one)
	})
}

var (
	invalid  = regexp.MustCompile(`(\w+)\.substorm\.dev "[^"]*" is invalid: `)
	required = regexp.MustCompile(`(spec[\w.\[\]]*): Required value`)
)

// Hint adds to the message of a missing field which values it takes, as the kind's schema says.
func Hint(kind, field, message string) string {
	if !strings.HasSuffix(message, "Required value") {
		return message
	}
	if values := valuesOf(kind, field); values != "" {
		return message + ": " + values
	}
	return message
}

// schemas are those of our kinds.
var schemas = sync.OnceValue(func() map[string]apiextensionsv1.JSONSchemaProps {
	all := map[string]apiextensionsv1.JSONSchemaProps{}
	files, _ := crds.Files.ReadDir(".") // they are embedded
	for _, file := range files {
		text, _ := crds.Files.ReadFile(file.Name())
		var crd apiextensionsv1.CustomResourceDefinition
		if yaml.Unmarshal(text, &crd) == nil && len(crd.Spec.Versions) > 0 {
			all[crd.Spec.Names.Kind] = *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	return all
})

// valuesOf says what a field takes: one of some words, or an object with fields that it must have; empty where the schema does not list it.
func valuesOf(kind, field string) string {
	at, known := schemas()[kind]
	for part := range strings.SplitSeq(field, ".") {
		if !known {
			return ""
		}
		name, _, element := strings.Cut(part, "[")
		if at, known = at.Properties[name]; known && element && at.Items != nil {
			at = *at.Items.Schema
		}
	}
	if words := enum(&at); words != "" {
		return "write " + words
	}
	var fields []string
	for _, name := range at.Required {
		field := at.Properties[name]
		if words := enum(&field); words != "" {
			name += ", which is " + words
		}
		fields = append(fields, name)
	}
	if len(fields) == 0 {
		return ""
	}
	return "it has the field " + strings.Join(fields, " and the field ")
}

// enum lists the words that a field takes.
func enum(s *apiextensionsv1.JSONSchemaProps) string {
	var words []string
	for _, w := range s.Enum {
		words = append(words, strings.Trim(string(w.Raw), `"`))
	}
	slices.Sort(words)
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return fmt.Sprintf("%s or %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
}
