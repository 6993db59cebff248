// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/decode"
)

// older are the names of HAPI 2, which are still answered.
var older = map[string]string{"id": "dataset", "time.min": "start", "time.max": "stop"}

// fields reads the parameters of a request: only known names, each once.
func fields(u *url.URL, known ...string) (map[string]string, *problem) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, failure(codeUserError, "the query cannot be read")
	}
	asked := map[string]string{}
	for name, all := range values {
		if newer, ok := older[name]; ok {
			name = newer
		}
		if !slices.Contains(known, name) {
			return nil, failure(codeUnknownField, "this endpoint knows "+strings.Join(known, ", "))
		}
		if _, twice := asked[name]; twice || len(all) > 1 {
			return nil, failure(codeUserError, name+" is given twice")
		}
		asked[name] = all[0]
	}
	if v, ok := asked["resolve_references"]; ok && v != "true" && v != "false" {
		return nil, failure(codeReferences, "it is true or false")
	}
	return asked, nil
}

// format of an answer.
type format string

const (
	formatCSV    format = "csv"
	formatBinary format = "binary"
	formatJSON   format = "json"
)

// question is a request for data.
type question struct {
	// from (included) and to (excluded) in nanoseconds since 1970.
	from, to int64
	format   format
	header   bool
}

// parseQuestion reads a request for data from what is served of a dataset.
func parseQuestion(asked map[string]string, s span) (question, *problem) {
	q := question{format: formatCSV}
	var ok bool
	if q.from, ok = parseTime(asked["start"]); !ok {
		return q, failure(codeStart, "a time is as 2026-11-21T12:00:00Z or 2026-325T12:00Z")
	}
	if q.to, ok = parseTime(asked["stop"]); !ok {
		return q, failure(codeStop, "a time is as 2026-11-21T12:00:00Z or 2026-325T12:00Z")
	}
	if q.from >= q.to {
		return q, failure(codeStartAfterStop, "")
	}
	if q.from < decode.Nanoseconds(s.start) || q.to > decode.Nanoseconds(s.stop) {
		return q, failure(codeOutside, "the dataset has "+spellTime(s.start)+" to "+spellTime(s.stop))
	}
	if f, ok := asked["format"]; ok {
		q.format = format(f)
	}
	if q.format != formatCSV && q.format != formatBinary && q.format != formatJSON {
		return q, failure(codeFormat, "formats are csv, binary and json")
	}
	include, ok := asked["include"]
	if ok && include != "header" {
		return q, failure(codeInclude, "only the header can be included")
	}
	q.header = ok
	return q, nil
}

// parseTime reads a time as HAPI restricts ISO 8601. A time that does not fit in nanoseconds
// becomes the first or last one that does, and so is outside of all data.
func parseTime(text string) (int64, bool) {
	if len(text) > 40 || strings.ContainsAny(text, " +tz") {
		return 0, false
	}
	if _, clock, _ := strings.Cut(text, "T"); strings.Contains(clock, "-") {
		return 0, false
	}
	t, ok := decode.ParseTime([]byte(text))
	return decode.Nanoseconds(t), ok
}

func spellTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// choose returns the numbers of the parameters that are asked for; nil for all. The
// time's own name may be among them.
func choose(asked string, parameters []decode.Parameter) ([]int, *problem) {
	if asked == "" {
		return nil, nil
	}
	chosen := []int{}
	last := -2
	for name := range strings.SplitSeq(asked, ",") {
		number := -1
		if name != timeName {
			number = slices.IndexFunc(parameters, func(p decode.Parameter) bool { return p.Name == name })
			if number < 0 {
				return nil, failure(codeUnknownParameter, "info lists those of the dataset")
			}
			chosen = append(chosen, number)
		}
		if number <= last {
			return nil, failure(codeOrder, "they have the order of info, each once")
		}
		last = number
	}
	return chosen, nil
}

// matches reports whether a client has what a tag is of (RFC 9110, weak comparison).
func matches(ifNoneMatch, tag string) bool {
	for one := range strings.SplitSeq(ifNoneMatch, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
