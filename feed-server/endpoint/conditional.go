// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net/http"
	"strings"
	"time"
)

// Condition is what a request's conditions come to.
type Condition int

// The conditions, as RFC 9110, section 13.2.2, orders them.
const (
	// Proceed: answer.
	Proceed Condition = iota
	// Unchanged: 304, the client has it.
	Unchanged
	// Failed: 412.
	Failed
)

// Evaluate evaluates a request's conditions against the current content: a strong entity tag, in
// its quotes, and the time of its change, to the second; the zero time if that is not reliable. For
// ranges see RangeHolds.
func Evaluate(r *http.Request, tag string, changed time.Time) Condition {
	if match := lines(r, "If-Match"); match != "" {
		if !Listed(match, tag, false) {
			return Failed
		}
	} else if since := r.Header.Get("If-Unmodified-Since"); since != "" && !changed.IsZero() {
		if t, err := http.ParseTime(since); err == nil && changed.After(t) {
			return Failed
		}
	}
	if match := lines(r, "If-None-Match"); match != "" {
		if Listed(match, tag, true) {
			return Unchanged
		}
		return Proceed
	}
	if since := r.Header.Get("If-Modified-Since"); since != "" && !changed.IsZero() {
		if t, err := http.ParseTime(since); err == nil && !changed.After(t) {
			return Unchanged
		}
	}
	return Proceed
}

// RangeHolds reports whether the range that a request asks for is a range of the current content
// (If-Range, RFC 9110, section 13.1.5).
func RangeHolds(r *http.Request, tag string, changed time.Time) bool {
	condition := strings.TrimSpace(r.Header.Get("If-Range"))
	if condition == "" {
		return true
	}
	if strings.HasPrefix(condition, `"`) || strings.HasPrefix(condition, "W/") {
		return condition == tag
	}
	t, err := http.ParseTime(condition)
	return err == nil && !changed.IsZero() && changed.Equal(t)
}

// lines are a header's values as one.
func lines(r *http.Request, name string) string {
	values := r.Header[name]
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values, ",")
}

// Listed reports whether an entity tag stands in a list such as If-None-Match has. Weak
// ones count as weak says.
func Listed(list, tag string, weak bool) bool {
	for {
		list = strings.TrimLeft(list, " \t,")
		if strings.HasPrefix(list, "*") {
			return true
		}
		rest, isWeak := strings.CutPrefix(list, "W/")
		if !strings.HasPrefix(rest, `"`) {
			return false // the end, or none
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 {
			return false
		}
		if rest[:end+2] == tag && (weak || !isWeak) {
			return true
		}
		list = rest[end+2:]
	}
}
