// SPDX-License-Identifier: Apache-2.0

package kube

import "regexp"

// plainer are parts of an API server's errors that are of no use to who wrote the manifest, and what stands in their place.
var plainer = []struct {
	part *regexp.Regexp
	by   string
}{
	// The server repeats the whole object of a patch with an unknown field.
	{regexp.MustCompile(`(?s)The request is invalid: patch: Invalid value: .*: strict decoding error: `), ""},
	{regexp.MustCompile(`(?s)patch: Invalid value: .*: strict decoding error: `), ""},
	{regexp.MustCompile(`,? ?<nil>: Invalid value: (null|"null"): some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`), ""},
	{regexp.MustCompile(`\nensure CRDs are installed first`), ""},
	// A number or a boolean where text belongs: 20 for 20s, no for "no".
	{regexp.MustCompile(`expected string, got &value\.valueUnstructured\{Value:([^}]*)\}`), `expected text, got $1: put it in quotes, and a duration or a size has a unit, such as "20s"`},
	{regexp.MustCompile(`&value\.valueUnstructured\{Value:([^}]*)\}`), "$1"},
}

// Plain is an error of an API server without what is of no use to who wrote the manifest.
func Plain(message string) string {
	for _, p := range plainer {
		message = p.part.ReplaceAllString(message, p.by)
	}
	return message
}
