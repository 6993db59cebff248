// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Read returns what a name tells. A field that the template holds twice has the
// same value twice. Errors: ErrName.
func (t *Template) Read(name string) (Values, error) {
	fail := func(why string) (Values, error) { return Values{}, fmt.Errorf("%w %q: %s", ErrName, name, why) }
	found := t.match.FindStringSubmatch(name)
	if found == nil {
		return fail("it does not look like " + t.text)
	}
	r := reading{year: -1, year2: -1, month: -1, day: -1, doy: -1}
	seen := map[string]string{}
	i := 0
	for _, p := range t.parts {
		if p.field == nil {
			continue
		}
		i++
		f, text := p.field, found[i]
		if before, again := seen[f.Name]; again && before != text && f.Name != "any" {
			return fail(fmt.Sprintf("{%s} is %s and %s", f.Name, before, text))
		}
		seen[f.Name] = text
		if err := f.read(&r, text); err != nil {
			return fail(fmt.Sprintf("{%s}: %v", f.Name, err))
		}
	}
	if !t.HasTime() {
		return r.Values, nil
	}
	at, ok := r.time()
	if !ok {
		return fail("there is no such time")
	}
	r.Time = at
	return r.Values, nil
}

// maxYear is the last one that RFC 3339 writes: after second 60 of its end no notice could tell the time.
const maxYear = 9999

// time puts the units together, and refuses those that do not exist.
func (r *reading) time() (time.Time, bool) {
	year, agree := r.fullYear()
	if !agree {
		return time.Time{}, false
	}
	month, day := r.month, r.day
	if r.doy >= 0 {
		at := time.Date(year, 1, r.doy, 0, 0, 0, 0, time.UTC)
		if at.Year() != year || (month >= 0 && month != int(at.Month())) || (day >= 0 && day != at.Day()) {
			return time.Time{}, false
		}
		month, day = int(at.Month()), at.Day()
	}
	at := time.Date(year, time.Month(month), day, r.hour, r.minute, 0, 0, time.UTC)
	exists := at.Year() == year && int(at.Month()) == month && at.Day() == day && r.hour < 24 && r.minute < 60 && r.second <= 60
	at = at.Add(time.Duration(r.second)*time.Second + time.Duration(r.millisecond)*time.Millisecond)
	return at, exists && at.Year() <= maxYear
}

// Write returns the name that values have. Errors: ErrName where a value is
// missing, or is none that the template would read.
func (t *Template) Write(v Values) (string, error) {
	v.Time = v.Time.UTC()
	var b strings.Builder
	for _, p := range t.parts {
		if p.field == nil {
			b.WriteString(p.literal)
			continue
		}
		if p.field.write == nil {
			return "", fmt.Errorf("%w: {%s} of %q is for reading only", ErrName, p.field.Name, t.text)
		}
		text := p.field.write(v)
		if p.field.Name == fieldDigest && len(text) > p.digits {
			text = text[:p.digits]
		}
		if text == "" {
			return "", fmt.Errorf("%w: {%s} of %q has no value", ErrName, p.field.Name, t.text)
		}
		b.WriteString(text)
	}
	name := b.String()
	if !t.match.MatchString(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("%w %q: the template %q cannot read it", ErrName, name, t.text)
	}
	return name, nil
}
