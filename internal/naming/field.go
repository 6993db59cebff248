// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"fmt"
	"strconv"
	"time"
)

const (
	fieldDigest     = "digest"
	digestDigits    = 64
	minDigestDigits = 8
)

// field is what may stand in braces.
type field struct {
	Name, Help string
	pattern    string
	// unit of time, 0 for others; needs are lists of fields: the template must have at least one field of each list.
	unit  time.Duration
	needs [][]string
	read  func(*reading, string) error
	// write is nil for a field that only reads.
	write func(Values) string
}

const (
	dayUnit  = 24 * time.Hour
	yearUnit = 365 * dayUnit
)

var (
	needYear   = []string{"year", "year2"}
	needMonth  = []string{"month"}
	needDay    = []string{"day", "doy"}
	needHour   = []string{"hour"}
	needMinute = []string{"minute"}
	needSecond = []string{"second"}
)

// Fields are all that a template may hold. Numbers have leading zeros.
var Fields = []field{
	number("year", "year, four digits", 4, yearUnit, nil,
		func(r *reading) *int { return &r.year }, time.Time.Year),
	{Name: "year2", Help: "year, two digits: 69 to 99 are of the 20th century, as in POSIX strptime", pattern: `\d{2}`, unit: yearUnit,
		read: readYear2, write: func(v Values) string { return fmt.Sprintf("%02d", v.Time.Year()%100) }},
	number("month", "month, 01 to 12", 2, 30*dayUnit, [][]string{needYear},
		func(r *reading) *int { return &r.month }, func(t time.Time) int { return int(t.Month()) }),
	number("day", "day of the month, 01 to 31", 2, dayUnit, [][]string{needYear, needMonth},
		func(r *reading) *int { return &r.day }, time.Time.Day),
	number("doy", "day of the year, 001 to 366", 3, dayUnit, [][]string{needYear},
		func(r *reading) *int { return &r.doy }, time.Time.YearDay),
	number("hour", "hour, 00 to 23", 2, time.Hour, [][]string{needYear, needDay},
		func(r *reading) *int { return &r.hour }, time.Time.Hour),
	number("minute", "minute, 00 to 59", 2, time.Minute, [][]string{needHour},
		func(r *reading) *int { return &r.minute }, time.Time.Minute),
	number("second", "second, 00 to 60: a leap second counts as the next second", 2, time.Second, [][]string{needMinute},
		func(r *reading) *int { return &r.second }, time.Time.Second),
	number("millisecond", "millisecond, 000 to 999", 3, time.Millisecond, [][]string{needSecond},
		func(r *reading) *int { return &r.millisecond }, func(t time.Time) int { return t.Nanosecond() / 1e6 }),
	word("station", "station of the instrument", func(v *Values) *string { return &v.Station }),
	word("instrument", "name of the instrument", func(v *Values) *string { return &v.Instrument }),
	{Name: "name", Help: "the sender's name of the object, folders included", pattern: `.+`,
		read:  func(r *reading, s string) error { r.Name = s; return nil },
		write: func(v Values) string { return v.Name }},
	{Name: "sequence", Help: "number of the object", pattern: `\d{1,19}`, read: readSequence,
		write: func(v Values) string { return strconv.FormatUint(v.Sequence, 10) }},
	{Name: "id", Help: "milliseconds of receipt and 16 digits of the digest, as at the end of keys", pattern: `\d{13}-[0-9a-f]{16}`,
		read:  func(r *reading, s string) error { r.ID = s; return nil },
		write: func(v Values) string { return v.ID }},
	{Name: fieldDigest, Help: "SHA-256 in hex; {digest:16} is its first 16 digits",
		read:  func(r *reading, s string) error { r.Digest = s; return nil },
		write: func(v Values) string { return v.Digest }},
	{Name: "any", Help: "anything within one folder; for reading only", pattern: `[^/]*`,
		read: func(*reading, string) error { return nil }},
}

// reading is what was read of a name so far; -1 for what it does not contain.
type reading struct {
	Values
	year, year2, month, day, doy, hour, minute, second, millisecond int
}

func number(name, help string, digits int, unit time.Duration, needs [][]string, at func(*reading) *int, of func(time.Time) int) field {
	return field{
		Name: name, Help: help, pattern: fmt.Sprintf(`\d{%d}`, digits), unit: unit, needs: needs,
		read: func(r *reading, s string) error {
			n, err := strconv.Atoi(s)
			*at(r) = n
			return err
		},
		write: func(v Values) string { return fmt.Sprintf("%0*d", digits, of(v.Time)) },
	}
}

func word(name, help string, at func(*Values) *string) field {
	return field{
		Name: name, Help: help, pattern: `[A-Za-z0-9][A-Za-z0-9_-]*?`,
		read:  func(r *reading, s string) error { *at(&r.Values) = s; return nil },
		write: func(v Values) string { return *at(&v) },
	}
}

func readYear2(r *reading, s string) (err error) {
	r.year2, err = strconv.Atoi(s)
	return err
}

// fullYear is the year of four digits if there is one, else the year that the last two digits mean; false if they contradict each other.
func (r *reading) fullYear() (int, bool) {
	switch {
	case r.year2 < 0:
		return r.year, true
	case r.year >= 0:
		return r.year, r.year%100 == r.year2
	case r.year2 >= 69:
		return 1900 + r.year2, true
	default:
		return 2000 + r.year2, true
	}
}

func readSequence(r *reading, s string) (err error) {
	r.Sequence, err = strconv.ParseUint(s, 10, 64)
	return err
}
