// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A manager that created a Secret, as kubectl create does, owns its map of data, and not the keys without an owner.
func TestUnownedKeysBesideTheCreator(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string][]string{
		`{"f:data":{".":{},"f:ops":{}}}`: {"uni"},
		`{"f:data":{"f:ops":{}}}`:        {"uni"},
		`{"f:data":{}}`:                  nil,
		`{"f:stringData":{"f:uni":{}}}`:  {"ops"},
	} {
		manager := metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{}}
		if err := manager.FieldsV1.UnmarshalJSON([]byte(fields)); err != nil {
			t.Fatal(err)
		}
		if got := UnownedKeys([]metav1.ManagedFieldsEntry{manager}, slices.Values([]string{"uni", "ops"})); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
}
