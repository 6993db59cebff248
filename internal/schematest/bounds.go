// SPDX-License-Identifier: Apache-2.0

package schematest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	durationBound = regexp.MustCompile(`duration\('([^']+)'\)`)
	quantityBound = regexp.MustCompile(`quantity\('([^']+)'\)`)
)

// endless is a text that is longer than anything that may be made from it: the message of a condition has at most 32 KiB.
const endless = 70_000

// Bounds returns values at each bound that a schema sets, and the next ones beyond it.
func Bounds(s apiextensionsv1.JSONSchemaProps) []any {
	var all []any
	for _, rule := range s.XValidations {
		for _, found := range durationBound.FindAllStringSubmatch(rule.Rule, -1) {
			if at, err := time.ParseDuration(found[1]); err == nil {
				all = append(all, found[1], fmt.Sprintf("%dms", at.Milliseconds()+1), fmt.Sprintf("%dms", at.Milliseconds()-1))
			}
		}
		for _, found := range quantityBound.FindAllStringSubmatch(rule.Rule, -1) {
			if at, err := resource.ParseQuantity(found[1]); err == nil {
				all = append(all, found[1], fmt.Sprint(at.Value()+1), fmt.Sprint(at.Value()-1))
			}
		}
	}
	for _, bound := range []*float64{s.Minimum, s.Maximum} {
		if bound != nil {
			for _, by := range []int64{-1, 0, 1} {
				all = append(all, json.Number(fmt.Sprint(int64(*bound)+by)))
			}
		}
	}
	switch {
	case s.Type == "string" && s.MaxLength != nil:
		for _, length := range []int64{*s.MaxLength, *s.MaxLength + 1} {
			all = append(all, strings.Repeat("a", int(length)), strings.Repeat("é", int(length)))
		}
	case s.Type == "string" && len(s.Enum) == 0:
		all = append(all, strings.Repeat("a", endless))
	case s.Type == "array" && s.MaxItems != nil:
		item := Plausible(*s.Items.Schema)[0]
		all = append(all, []any{}, slices.Repeat([]any{item}, int(*s.MaxItems)), slices.Repeat([]any{item}, int(*s.MaxItems)+1))
	}
	return all
}
