// SPDX-License-Identifier: Apache-2.0

package readable

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	begins  = `{"apiVersion":"substorm.dev/v1alpha1","kind":"Instrument","metadata":{`
	fields  = `"managedFields":[{"fieldsV1":{"f:spec":{"k:{\"name\":\"a]b\"}":[1,[2]]}},"manager":"a\\"},{"manager":"b"}]`
	ends    = `"name":"camera"},"spec":{"siteRef":{"name":"hub"}}}`
	quoting = `"annotations":{"a":"\"managedFields\":[\\\"{"},`
)

func testMender(t testing.TB) mender {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return mender{scheme: scheme, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func decoded(t testing.TB, data string) (value map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &value); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return value
}

// TestEvents: what is found in the bytes is what decoding finds, however an event is written.
func TestEvents(t *testing.T) {
	m := testMender(t)
	broken := strings.Replace(ends, `"hub"}`, `"hub"},"archive":{"repeatWindow":"99999999999999999999m"}`, 1)
	for name, object := range map[string]string{
		"as it is":                  begins + ends,
		"fields first":              begins + fields + "," + ends,
		"fields last":               begins + `"name":"camera",` + fields + `},"spec":{}}`,
		"fields alone":              begins + fields + `},"spec":{}}`,
		"the same text in a string": begins + quoting + ends,
		"both":                      begins + quoting + fields + "," + ends,
		"another order":             `{"kind":"Instrument","apiVersion":"substorm.dev/v1alpha1","metadata":{` + fields + "," + ends,
		"cannot be decoded":         begins + fields + "," + broken,
		"not ours":                  `{"apiVersion":"v1","kind":"Status","code":410}`,
	} {
		for _, event := range []string{`{"type":"ADDED","object":` + object + `}`, `{ "type": "ADDED", "object": ` + object + ` }`, `{"object":` + object + `,"type":"ADDED"}`} {
			got, want := decoded(t, string(m.event([]byte(event)))), decoded(t, event)
			is := got["object"].(map[string]any)
			metadata, _ := is["metadata"].(map[string]any)
			wanted, _ := want["object"].(map[string]any)["metadata"].(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			_, unreadable := annotations[v1alpha1.AnnotationUnreadable]
			if unreadable != (name == "cannot be decoded") {
				t.Errorf("%s: unreadable is %v: %s", name, unreadable, event)
			}
			if unreadable {
				continue
			}
			delete(metadata, "managedFields")
			delete(wanted, "managedFields")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", name, event, diff)
			}
		}
		if cut := string(withoutManagedFields([]byte(object))); name != "both" && strings.Contains(cut, `"manager"`) {
			t.Errorf("%s: managed fields are left: %s", name, cut)
		}
	}
}

// FuzzWithoutManagedFields: whatever the bytes are, valid JSON stays so, and loses nothing else.
func FuzzWithoutManagedFields(f *testing.F) {
	for _, seed := range []string{begins + fields + "," + ends, begins + quoting + fields + "," + ends, begins + ends, `{"metadata":{"managedFields":[`, `{"metadata":{}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, object string) {
		var before, after struct {
			Metadata map[string]any `json:"metadata"`
		}
		if json.Unmarshal([]byte(object), &before) != nil {
			withoutManagedFields([]byte(object)) // it must end
			return
		}
		cut := withoutManagedFields([]byte(object))
		if err := json.Unmarshal(cut, &after); err != nil {
			t.Fatalf("%q became %q: %v", object, cut, err)
		}
	})
}

// BenchmarkEvent is what each event of a watch costs before clients decode it.
func BenchmarkEvent(b *testing.B) {
	m := testMender(b)
	event := []byte(`{"type":"ADDED","object":` + begins + fields + "," + ends + `}`)
	b.SetBytes(int64(len(event)))
	for b.Loop() {
		m.event(event)
	}
}
