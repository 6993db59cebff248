// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

var (
	errNoTime   = errors.New("no valid time")
	errTimeSpan = errors.New("the time is before 1678 or after 2261")
	errLeap     = errors.New("the time is in a leap second, for which samples have no time of their own")
)

// ParseTime reads a time of ISO 8601 (yyyy-mm-dd or yyyy-ddd, then T or a blank and hh:mm:ss.f; T and Z also in lower case, as in RFC
// 3339). Everything behind the year may be left out, from the end. Without a zone it is UTC. Second 60 is the second that follows. It
// returns false for anything else.
func ParseTime(text []byte) (time.Time, bool) { return new(dates).parse(text) }

// dates remembers the date that was read last: most payloads tell the same again and
// again. The zero value knows of none.
type dates struct {
	text  [len("2006-01-02")]byte
	date  time.Time
	known bool
}

// parse is ParseTime.
func (d *dates) parse(text []byte) (time.Time, bool) {
	date, rest, whole, ok := d.read(text)
	if !ok {
		return time.Time{}, false
	}
	var clock time.Duration
	if len(rest) > 0 && (rest[0]|0x20 == 't' || rest[0] == ' ') {
		if clock, rest, ok = parseClock(rest[1:]); !ok || !whole {
			return time.Time{}, false
		}
	}
	zone, ok := parseZone(rest)
	if !ok {
		return time.Time{}, false
	}
	return date.Add(clock - zone), true
}

// observed is parse for the time of a sample. Second 60 is the second that follows, as some devices round up to it, but in a
// leap second: what follows that has samples of its own. Errors: errNoTime, errLeap.
func (d *dates) observed(text []byte) (time.Time, error) {
	t, ok := d.parse(text)
	switch {
	case !ok:
		return t, errNoTime
	case isLeap(t) && hasSecond60(text):
		return t, errLeap
	}
	return t, nil
}

// isLeap says whether a time may be a leap second, read as the second that follows: they are inserted at the end of June and of December
// (ITU-R TF.460-6), others at the end of a month are not used.
func isLeap(t time.Time) bool {
	return t.Day() == 1 && (t.Month() == time.January || t.Month() == time.July) && t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0
}

// hasSecond60 says whether a text that is a time tells second 60, in whatever minute of its zone: no minute has this number.
func hasSecond60(text []byte) bool { return bytes.Contains(text, second60) }

var second60 = []byte(":60")

// read is parseDate.
func (d *dates) read(text []byte) (date time.Time, rest []byte, whole, ok bool) {
	n := len(d.text)
	if d.known && len(text) >= n && string(text[:n]) == string(d.text[:]) {
		return d.date, text[n:], true, true
	}
	date, rest, whole, ok = parseDate(text)
	if ok && whole && len(text)-len(rest) == n {
		d.date, d.known = date, true
		copy(d.text[:], text)
	}
	return date, rest, whole, ok
}

// parseDate reads the date; whole says whether it names a day.
func parseDate(text []byte) (date time.Time, rest []byte, whole, ok bool) {
	if len(text) < 4 {
		return time.Time{}, nil, false, false
	}
	year, ok := parseDigits(text[:4])
	if !ok {
		return time.Time{}, nil, false, false
	}
	rest = text[4:]
	if len(rest) == 0 || rest[0] != '-' {
		return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), rest, false, true
	}
	rest = rest[1:]
	if len(rest) >= 3 {
		if doy, ok := parseDigits(rest[:3]); ok {
			date = time.Date(year, 1, doy, 0, 0, 0, 0, time.UTC)
			return date, rest[3:], true, doy > 0 && date.Year() == year
		}
	}
	if len(rest) < 2 {
		return time.Time{}, nil, false, false
	}
	month, ok := parseDigits(rest[:2])
	if !ok || month < 1 || month > 12 {
		return time.Time{}, nil, false, false
	}
	rest = rest[2:]
	if len(rest) < 3 || rest[0] != '-' {
		return time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC), rest, false, true
	}
	day, ok := parseDigits(rest[1:3])
	date = time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	return date, rest[3:], true, ok && day > 0 && int(date.Month()) == month
}

// parseClock reads a time of day.
func parseClock(text []byte) (clock time.Duration, rest []byte, ok bool) {
	const day = 24 * time.Hour
	limits := [...]int{24, 59, 60}
	units := [...]time.Duration{time.Hour, time.Minute, time.Second}
	midnight := false // of the day's end, as 24:00
	for i := range limits {
		if i > 0 {
			midnight = midnight || clock >= day
			if len(text) == 0 || text[0] != ':' {
				return clock, text, !midnight || clock == day
			}
			text = text[1:]
		}
		if len(text) < 2 {
			return 0, nil, false
		}
		tens, ones := text[0]-'0', text[1]-'0'
		n := int(tens)*10 + int(ones)
		if tens > 9 || ones > 9 || n > limits[i] {
			return 0, nil, false
		}
		clock += time.Duration(n) * units[i]
		text = text[2:]
	}
	if len(text) > 0 && (text[0] == '.' || text[0] == ',') { // ISO 8601 knows both
		unit := time.Second
		for text = text[1:]; len(text) > 0 && text[0] >= '0' && text[0] <= '9'; text = text[1:] {
			unit /= 10 // finer than nanoseconds it is 0
			clock += time.Duration(text[0]-'0') * unit
		}
	}
	return clock, text, !midnight || clock == day
}

// parseZone reads what a zone adds to UTC.
func parseZone(text []byte) (time.Duration, bool) {
	if len(text) == 0 || len(text) == 1 && text[0]|0x20 == 'z' {
		return 0, true
	}
	sign := time.Duration(1)
	if text[0] == '-' {
		sign = -1
	} else if text[0] != '+' {
		return 0, false
	}
	text = text[1:]
	if len(text) == 5 && text[2] == ':' {
		minutes, ok := parseDigits(text[3:])
		hours, also := parseDigits(text[:2])
		return sign * (time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute), ok && also && hours < 24 && minutes < 60
	}
	if len(text) == 4 || len(text) == 2 {
		hours, ok := parseDigits(text[:2])
		minutes, also := 0, true
		if len(text) == 4 {
			minutes, also = parseDigits(text[2:])
		}
		return sign * (time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute), ok && also && hours < 24 && minutes < 60
	}
	return 0, false
}

// The seconds whose nanoseconds fit in 64 bits.
const (
	minSeconds = math.MinInt64/int64(time.Second) + 1
	maxSeconds = math.MaxInt64/int64(time.Second) - 1
)

// nanoseconds returns a time as samples have it.
func nanoseconds(t time.Time) (int64, error) {
	if s := t.Unix(); s < minSeconds || s > maxSeconds {
		return 0, errTimeSpan
	}
	return t.UnixNano(), nil
}

// Nanoseconds returns a time in nanoseconds since 1970. A time that does not fit becomes the first or the last
// second that does.
func Nanoseconds(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < minSeconds:
		return minSeconds * int64(time.Second)
	case s > maxSeconds:
		return maxSeconds * int64(time.Second)
	}
	return t.UnixNano()
}

// clock reads times that stand in payloads.
type clock struct {
	iso bool
	// unit in nanoseconds of what a number counts.
	unit int64
}

func newClock(format string) (clock, error) {
	units := map[string]time.Duration{wire.TimeUnixSeconds: time.Second, wire.TimeUnixMilliseconds: time.Millisecond,
		wire.TimeUnixMicroseconds: time.Microsecond, wire.TimeUnixNanoseconds: time.Nanosecond}
	if format == wire.TimeISO8601 {
		return clock{iso: true}, nil
	}
	if unit := units[format]; unit > 0 {
		return clock{unit: int64(unit)}, nil
	}
	return clock{}, fmt.Errorf("unknown format of times %q", format)
}

// text reads a time. Numbers are read digit by digit: a double holds nanoseconds of
// no time after 1970-04.
func (c clock) text(r *run, text []byte) (int64, error) {
	if c.iso {
		t, err := r.dates.observed(text)
		if err != nil {
			return 0, err
		}
		return nanoseconds(t)
	}
	digits, scale, negative, ok := decimal(r.spare[:0], text)
	if r.spare = digits; !ok {
		return 0, errNoTime
	}
	for unit := c.unit; unit > 1; unit /= 10 {
		scale++
	}
	n, ok := scaled(digits, scale)
	switch {
	case !ok:
		return 0, errTimeSpan
	case negative:
		return -n, nil
	}
	return n, nil
}

// maxTimeText bounds the text of a number that is a time, and maxExponent its exponent.
const maxTimeText, maxExponent = 64, 1000

// decimal reads a decimal number, with an exponent or without (RFC 8259, section 6), as its digits and the power of ten of the
// last one. The digits are appended.
func decimal(digits, text []byte) (_ []byte, scale int, negative, ok bool) {
	if len(text) > maxTimeText {
		return digits, 0, false, false
	}
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		negative, text = text[0] == '-', text[1:]
	}
	_, whole := leadingDigits(0, text)
	digits, text = append(digits, text[:whole]...), text[whole:]
	if whole == 0 {
		return digits, 0, false, false
	}
	if len(text) > 0 && text[0] == '.' {
		_, decimals := leadingDigits(0, text[1:])
		digits, text, scale = append(digits, text[1:1+decimals]...), text[1+decimals:], -decimals
	}
	if len(text) == 0 {
		return digits, scale, negative, true
	}
	if text[0]|0x20 != 'e' {
		return digits, 0, false, false
	}
	text = text[1:]
	sign := 1
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}
	exponent, ok := parseDigits(text)
	return digits, scale + sign*exponent, negative, ok && exponent <= maxExponent
}

// scaled returns the whole number that digits times a power of ten are, cut behind the point; ok is false for one that is too
// large.
func scaled(digits []byte, scale int) (n int64, ok bool) {
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	if len(digits) == 0 {
		return 0, true
	}
	const most = 19 // digits of an int64
	whole := len(digits) + scale
	if whole > most {
		return 0, false
	}
	for i := range max(whole, 0) {
		d := int64(0)
		if i < len(digits) {
			d = int64(digits[i] - '0')
		}
		if n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// integer returns the time that a number of units is.
func (c clock) integer(n int64) (int64, error) {
	if n > math.MaxInt64/c.unit-1 || n < math.MinInt64/c.unit+1 {
		return 0, errTimeSpan
	}
	return n * c.unit, nil
}

// float returns the time that a number of units is.
func (c clock) float(f float64) (int64, error) {
	whole, fraction := math.Modf(f)
	if limit := float64(math.MaxInt64/c.unit - 1); math.IsNaN(f) || whole >= limit || whole <= -limit {
		return 0, errTimeSpan
	}
	return int64(whole)*c.unit + int64(math.Round(fraction*float64(c.unit))), nil
}
