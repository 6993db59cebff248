// SPDX-License-Identifier: Apache-2.0

// Package naming reads and writes the names of files by templates, as in
//
//	{year}/{month}/{day}/{station}_{hour}{minute}{second}.fits
//
// The same template reads the names of an old archive and writes those of a new
// one. See Fields for what may stand in braces.
package naming

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxLength is how long a template may be, in bytes; S3 keys are at most 1024.
const MaxLength = 512

// ErrTemplate: a template cannot be understood.
var ErrTemplate = errors.New("naming template")

// ErrName: a name does not look as the template says.
var ErrName = errors.New("name")

// Values are what a name tells.
type Values struct {
	// Time in UTC, as exact as the template is.
	Time time.Time
	// Station, Instrument and Name are as in an Instrument's spec and in HTTP.
	Station, Instrument, Name string
	// ID is how wire.ShortID tells an instrument's objects apart.
	ID string
	// Digest is a SHA-256 in lower-case hex, or how it begins.
	Digest string
	// Sequence counts the objects of an instrument and day.
	Sequence uint64
}

// Template is a template that was understood.
type Template struct {
	text  string
	parts []part
	match *regexp.Regexp
	// resolution is the shortest unit of time that the template holds, 0 without one.
	resolution time.Duration
}

// part is literal text, or a field.
type part struct {
	literal string
	field   *field
	// digits is how many digits of a digest.
	digits int
}

// Parse understands a template. Errors: ErrTemplate, with what to do.
func Parse(text string) (*Template, error) {
	fail := func(format string, args ...any) (*Template, error) {
		return nil, fmt.Errorf("%w %q: %s", ErrTemplate, text, fmt.Sprintf(format, args...))
	}
	if text == "" || len(text) > MaxLength {
		return fail("it has %d bytes, give it 1 to %d", len(text), MaxLength)
	}
	if strings.HasPrefix(text, "/") || slices.Contains(strings.Split(text, "/"), "..") {
		return fail("it must be a relative path without ..")
	}
	t := &Template{text: text}
	for rest := text; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return fail("a } without its {")
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		if !found {
			break
		}
		name, following, closed := strings.Cut(after, "}")
		if !closed {
			return fail("a { without its }")
		}
		p, err := newPart(name)
		if err != nil {
			return fail("%v", err)
		}
		t.parts = append(t.parts, p)
		rest = following
	}
	if err := t.compile(); err != nil {
		return fail("%v", err)
	}
	return t, nil
}

func newPart(text string) (part, error) {
	name, width, given := strings.Cut(text, ":")
	i := slices.IndexFunc(Fields, func(f field) bool { return f.Name == name })
	if i < 0 {
		names := make([]string, len(Fields))
		for i, f := range Fields {
			names[i] = f.Name
		}
		return part{}, fmt.Errorf("there is no field {%s}; there are %s", name, strings.Join(names, ", "))
	}
	p := part{field: &Fields[i], digits: digestDigits}
	if !given {
		return p, nil
	}
	n, err := strconv.Atoi(width)
	if name != fieldDigest || err != nil || n < minDigestDigits || n > digestDigits {
		return part{}, fmt.Errorf("{%s}: only {digest:N} has a number, from %d to %d", text, minDigestDigits, digestDigits)
	}
	p.digits = n
	return p, nil
}

// compile makes the expression that names are matched against, and checks that
// the units of time make up a time.
func (t *Template) compile() error {
	var expr strings.Builder
	expr.WriteString("^")
	for _, p := range t.parts {
		if p.field == nil {
			expr.WriteString(regexp.QuoteMeta(p.literal))
			continue
		}
		expr.WriteString("(" + p.pattern() + ")")
		if u := p.field.unit; u > 0 && (t.resolution == 0 || u < t.resolution) {
			t.resolution = u
		}
	}
	expr.WriteString("$")
	match, err := regexp.Compile(expr.String())
	if err != nil {
		return err
	}
	t.match = match
	return t.checkTime()
}

func (p part) pattern() string {
	if p.field.Name == fieldDigest {
		return fmt.Sprintf("[0-9a-f]{%d}", p.digits)
	}
	return p.field.pattern
}

// checkTime: each unit of time needs the longer ones, back to the year.
func (t *Template) checkTime() error {
	for _, p := range t.parts {
		if p.field == nil {
			continue
		}
		for _, need := range p.field.needs {
			if !slices.ContainsFunc(need, t.Has) {
				return fmt.Errorf("{%s} needs {%s} beside it", p.field.Name, strings.Join(need, "} or {"))
			}
		}
	}
	return nil
}

// Has says whether the template holds a field.
func (t *Template) Has(name string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.field != nil && p.field.Name == name })
}

// HasTime says whether the names tell a time, at least a day.
func (t *Template) HasTime() bool { return t.resolution > 0 && t.resolution <= 24*time.Hour }

// Resolution is the shortest unit of time that names hold; 0 without one.
func (t *Template) Resolution() time.Duration { return t.resolution }

// String returns the template as it was written.
func (t *Template) String() string { return t.text }
