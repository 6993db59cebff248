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
		"The instruments \"x\" is invalid: \n* spec.cadence.interval: Invalid value: \"integer\": spec.cadence.interval in body must be of type string: \"integer\"\n" +
			`* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`: "The instruments \"x\" is invalid: \n* spec.cadence.interval: expected text, got integer: put it in quotes, and a duration or a size has a unit, such as \"20s\"",
		`.spec.cadence.interval: expected string, got &value.valueUnstructured{Value:20}`: `.spec.cadence.interval: expected text, got 20: put it in quotes, and a duration or a size has a unit, such as "20s"`,
		"Error from server (Invalid): error when applying patch:\n{\"spec\":{\"cadance\":1}}\nto:\nResource: \"instruments\"\nName: \"x\"\nfor: \"m.yaml\": error when patching \"m.yaml\":  \"\" is invalid: unknown field \"spec.cadance\"": `Error from server (Invalid): m.yaml: unknown field "spec.cadance"`,
		`error: resource mapping not found for name: "x" namespace: "" from "m.yaml": no matches for kind "Instruments" in version "substorm.dev/v1alpha1"`:                                                                                   `error: m.yaml: "x": there is no kind Instruments of substorm.dev/v1alpha1: substorm.dev/v1alpha1 has Site, IngestGateway, FeedServer, Instrument, Feed, FeedConsumer, MirrorPartner`,
		`The FeedConsumer.substorm.dev "x" is invalid: spec.delivery: Required value`:                                                                                                                                                         `The FeedConsumer.substorm.dev "x" is invalid: spec.delivery: Required value: it has the field type, which is NATS, ServerSentEvents or WebSocket`,
		`.spec.station: expected string, got &value.valueUnstructured{Value:false}`:                                                                                                                                                           `.spec.station: expected text, got false: put it in quotes, and a duration or a size has a unit, such as "20s"`,
	} {
		if got := kube.Plain(said); got != want {
			t.Errorf("%s\nbecomes\n%s, want\n%s", said, got, want)
		}
	}
}
