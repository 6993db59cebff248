// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"fmt"
	"slices"
	"strings"
)

// ParseLayout parses the template of the paths that objects have at a partner, where the objects of all Instruments lie together: the
// writer there knows no sequence, and must not give two of them one path. MirrorPartner.spec.layout has the same rules in CEL. Errors:
// ErrTemplate, with what to do.
func ParseLayout(text string) (*Template, error) {
	t, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if t.Has("sequence") {
		return nil, fmt.Errorf("%w %q: objects have no sequence at a partner: use {id} in place of {sequence}", ErrTemplate, text)
	}
	if !t.Has("id") && !t.Has(fieldDigest) && !t.Has("name") {
		return nil, fmt.Errorf("%w %q: add {id}, {digest} or {name}, so that objects have paths of their own", ErrTemplate, text)
	}
	if !t.Has("id") && !t.Has("name") && !t.HasTime() {
		return nil, fmt.Errorf("%w %q: add the day ({year}, {month} and {day}, or {year} and {doy}), {id} or {name}: a digest alone does not tell apart objects with the same bytes", ErrTemplate, text)
	}
	if !slices.ContainsFunc(strings.Split(text, "/"), tellsInstrument) {
		return nil, fmt.Errorf("%w %q: add {instrument}, as a folder or as {instrument}_ at the beginning of one, so that objects of two Instruments have paths of their own", ErrTemplate, text)
	}
	return t, nil
}

// tellsInstrument says whether a part of a path is never the same for two instruments. Fields other than {station} and {name} have a
// fixed width; and an instrument's name has no underscore, so that it ends at the first one.
func tellsInstrument(part string) bool {
	if !strings.Contains(part, "{instrument}") {
		return false
	}
	return strings.HasPrefix(part, "{instrument}_") || !strings.Contains(part, "{station}") && !strings.Contains(part, "{name}")
}
