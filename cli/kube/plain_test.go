// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"

	"github.com/substorm/substorm/cli/kube"
)

// TestPlain: what an API server says of a mistake is left, and what is of no use goes.
func TestPlain(t *testing.T) {
	for said, want := range map[string]string{
		`Instrument.substorm.dev "x" is invalid: spec.station: Required value`:                                                                                                                                              `Instrument.substorm.dev "x" is invalid: spec.station: Required value`,
		`The request is invalid: patch: Invalid value: "{\"metadata\":{\"managedFields\":[]},\n\"spec\":{\"cadance\":1}}": strict decoding error: unknown field "spec.cadance"`:                                             `unknown field "spec.cadance"`,
		`[spec.cadence.interval: Invalid value: "20": should match, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`: `[spec.cadence.interval: Invalid value: "20": should match]`,
		`.spec.cadence.interval: expected string, got &value.valueUnstructured{Value:20}`:                                                                                                                                   `.spec.cadence.interval: expected text, got 20: put it in quotes, and a duration or a size has a unit, such as "20s"`,
		`.spec.station: expected string, got &value.valueUnstructured{Value:false}`:                                                                                                                                         `.spec.station: expected text, got false: put it in quotes, and a duration or a size has a unit, such as "20s"`,
	} {
		if got := kube.Plain(said); got != want {
			t.Errorf("%s\nbecomes\n%s, want\n%s", said, got, want)
		}
	}
}
