// SPDX-License-Identifier: Apache-2.0

package readable

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// An operator that starts reads all its objects through one watch of each kind, and decoding them is what it waits for. So what
// API servers always write the same way is found in the bytes here, without decoding; what is written otherwise is decoded.

var (
	eventType     = []byte(`{"type":"`)
	eventObject   = []byte(`","object":`)
	ourObject     = []byte(`{"apiVersion":"` + v1alpha1.GroupVersion.String() + `","kind":"`)
	managedFields = []byte(`"managedFields":[`)
)

// cutEvent cuts an event of a watch, {"type":"ADDED","object":{…}}, around its object.
func cutEvent(event []byte) (before, object, after []byte, ok bool) {
	kind, rest, found := bytes.Cut(event, eventObject)
	if !found || !bytes.HasPrefix(kind, eventType) || bytes.ContainsAny(kind[len(eventType):], `"\{`) || !bytes.HasSuffix(rest, []byte("}}")) {
		return nil, nil, nil, false
	}
	begin, end := len(kind)+len(eventObject), len(event)-1
	return event[:begin:begin], event[begin:end:end], event[end:], true
}

// kindOf returns the kind of an object of ours.
func kindOf(object []byte) (kind string, ours bool) {
	if rest, found := bytes.CutPrefix(object, ourObject); found {
		if kind, _, found := bytes.Cut(rest, []byte(`"`)); found {
			return string(kind), true
		}
	}
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	err := json.Unmarshal(object, &meta)
	return meta.Kind, err == nil && meta.APIVersion == v1alpha1.GroupVersion.String()
}

// withoutManagedFields returns an object without metadata.managedFields, which are half of it and which nobody here reads. A quote
// within a string has a backslash before it, so these bytes are a member's name, and no other member of ours is named so.
func withoutManagedFields(object []byte) []byte {
	begin := bytes.Index(object, managedFields)
	if begin < 1 || object[begin-1] == '\\' {
		return object
	}
	end := arrayEnd(object, begin+len(managedFields))
	switch {
	case end < 0 || end == len(object):
		return object
	case object[end] == ',':
		end++
	case object[begin-1] == ',':
		begin--
	}
	return slices.Concat(object[:begin], object[end:])
}

// arrayEnd returns where an array ends whose first element begins at from; -1 where it has no end.
func arrayEnd(data []byte, from int) int {
	depth, quoted := 1, false
	for i := from; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}
