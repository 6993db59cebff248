// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/plan/accept"
)

// encoded returns a copy of an object in which the stringData of a Secret is data: the API server merges stringData into data and forgets it, so
// that a key which is later taken out of the file would stay.
func encoded(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	if !isSecret(o) || o.Object["stringData"] == nil {
		return o
	}
	texts, _, _ := unstructured.NestedMap(o.Object, "stringData") // Load has looked at it
	data, _, _ := unstructured.NestedMap(o.Object, "data")
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range texts {
		text, _ := value.(string) // null is empty
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	delete(o.Object, "stringData")
	o.Object["data"] = data
	return o
}

func isSecret(o *unstructured.Unstructured) bool {
	kind := o.GroupVersionKind()
	return kind.Group == "" && kind.Kind == "Secret"
}

// dropUnowned removes from a Secret, as the API server returned it, the keys that no file names and no other manager set: those of files that were
// applied with stringData.
func dropUnowned(ctx context.Context, c client.Client, secret *unstructured.Unstructured, log *slog.Logger) error {
	if !isSecret(secret) {
		return nil
	}
	data, _, _ := unstructured.NestedMap(secret.Object, "data")
	keys := accept.UnownedKeys(secret.GetManagedFields(), maps.Keys(data))
	if len(keys) == 0 {
		return nil
	}
	gone := map[string]any{}
	for _, key := range keys {
		gone[key] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": secret.GetResourceVersion()}, "data": gone})
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, secret, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return err
	}
	log.Warn("removed keys of a Secret that no file names", "name", secret.GetName(), "keys", keys)
	return nil
}
