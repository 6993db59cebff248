// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applyAgain is for how long an object is left alone that does not keep what was applied: the cache may be behind, or another client
// changes it all the time.
const applyAgain = 10 * time.Second

// applied is the configuration that was last applied of an object, and when.
type applied struct {
	owner  ownerOf
	digest [sha256.Size]byte
	at     time.Time
	// version of the object that was last seen to hold it; empty: none was.
	version string
}

// isApplied returns whether this very configuration of an object was applied, and the object still has all of it. After a restart the earlier
// configurations are unknown, and so are the fields of them that must be removed: then it returns false for all objects.
func (r *applier) isApplied(ctx context.Context, owner client.Object, key ownedObject, want []byte) (bool, error) {
	r.mu.Lock()
	last, known := r.applied[key]
	r.mu.Unlock()
	if !known || last.owner != asOwner(owner) || last.digest != sha256.Sum256(want) {
		return false, nil
	}
	object, err := r.cached(ctx, key.kind, key.NamespacedName)
	if err != nil || object == nil || !metav1.IsControlledBy(object, owner) {
		return false, err
	}
	if object.GetResourceVersion() == last.version {
		return true, nil
	}
	holds, err := holdsAll(object, want)
	if err != nil {
		return false, fmt.Errorf("compare %s %s: %w", key.kind, key.NamespacedName, err)
	}
	if !holds {
		return r.now().Sub(last.at) < applyAgain, nil
	}
	last.version = object.GetResourceVersion()
	r.mu.Lock()
	r.applied[key] = last
	r.mu.Unlock()
	return true, nil
}

// holdsAll says whether an object has all fields of a configuration.
func holdsAll(object client.Object, want []byte) (bool, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return false, err
	}
	var is, wanted map[string]any
	if err := errors.Join(json.Unmarshal(text, &is), json.Unmarshal(want, &wanted)); err != nil {
		return false, err
	}
	delete(wanted, "kind") // the cache's objects have no type
	delete(wanted, "apiVersion")
	return holds(is, wanted), nil
}

// holds compares values as JSON has them. The API server adds fields, leaves out those
// that are empty, and writes quantities its own way; lists keep their length and order.
func holds(is, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, _ := is.(map[string]any)
		for name, value := range want {
			if !holds(fields[name], value) {
				return false
			}
		}
		return true
	case []any:
		items, _ := is.([]any)
		if len(items) != len(want) {
			return false
		}
		for i := range want {
			if !holds(items[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return is == want || is == nil && (want == "" || want == false || want == 0.0) || sameQuantity(is, want)
	}
}

func sameQuantity(a, b any) bool {
	one, err := apiresource.ParseQuantity(fmt.Sprint(a))
	if err != nil {
		return false
	}
	other, err := apiresource.ParseQuantity(fmt.Sprint(b))
	return err == nil && one.Cmp(other) == 0
}

// cached reads an object of a kind that the cache holds; nil if it does not exist.
func (r *applier) cached(ctx context.Context, kind string, key types.NamespacedName) (client.Object, error) {
	typed, err := r.client.Scheme().New(kinds[kind])
	if err != nil {
		return nil, err
	}
	object := typed.(client.Object)
	if err := r.client.Get(ctx, key, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}
