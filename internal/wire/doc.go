// SPDX-License-Identifier: Apache-2.0

// Package wire spells every subject, key, header and stored record of Substorm,
// and is the only place that does. It does no I/O and imports nothing of ours.
//
// Everything stored or sent begins with a format version. Readers accept the
// current one and the one before; an unknown newer one is ErrNewerFormat.
package wire

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Format is the version of every record that this package writes.
const Format = 1

// ErrNewerFormat says that a record was written by a newer Substorm.
var ErrNewerFormat = errors.New("record has a newer format than this program reads: upgrade it")

// ErrMalformed says that bytes are not the record they should be.
var ErrMalformed = errors.New("malformed record")

// CheckFormat returns ErrNewerFormat or ErrMalformed where a record's version
// is not one that this program reads.
func CheckFormat(format int) error {
	switch {
	case format > Format:
		return fmt.Errorf("format %d: %w", format, ErrNewerFormat)
	case format < 1:
		return fmt.Errorf("format %d: %w", format, ErrMalformed)
	default:
		return nil
	}
}

// Day is a UTC day as 2006-01-02.
type Day string

const dayLayout = "2006-01-02"

// DayOf returns the UTC day that holds t.
func DayOf(t time.Time) Day { return Day(t.UTC().Format(dayLayout)) }

// ParseDay reads a day as DayOf writes it. Errors: ErrMalformed.
func ParseDay(s string) (Day, error) {
	if _, err := time.Parse(dayLayout, s); err != nil {
		return "", fmt.Errorf("day %q is not a date such as 2006-01-02: %w", s, ErrMalformed)
	}
	return Day(s), nil
}

// Start returns the first instant of the day.
func (d Day) Start() (time.Time, error) { return time.Parse(dayLayout, string(d)) }

// path returns the day as 2006/01/02.
func (d Day) path() string { return strings.ReplaceAll(string(d), "-", "/") }
