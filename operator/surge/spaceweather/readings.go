// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// kind has the facts about a quantity that do not depend on its source.
type kind struct {
	// least and most bound the possible values.
	least, most float64
	unit        string
	// lasts is how long a sample is, if its source does not say.
	lasts time.Duration
	// kept is how long samples are kept after they end.
	kept time.Duration
	// stale is how old the newest sample may be, by default.
	stale time.Duration
}

var kinds = map[surge.Quantity]kind{
	// The index has no value beyond 9. SWPC publishes one every three hours, some minutes after they end, so that the newest is three
	// hours old before the next one comes.
	surge.Kp: {least: 0, most: 9, lasts: 3 * time.Hour, kept: 48 * time.Hour, stale: 4 * time.Hour},
	// The strongest field that was measured at the distance of the Earth had 109 nT in all (STEREO A, July 2012).
	surge.Bz: {least: -200, most: 200, unit: " nT", lasts: time.Minute, kept: 3 * time.Hour, stale: 15 * time.Minute},
	// The solar wind has 250 to 800 km/s, and behind the fastest shocks had more than 2,000.
	surge.Speed: {least: 100, most: 4000, unit: " km/s", lasts: time.Minute, kept: 3 * time.Hour, stale: 15 * time.Minute},
}

// possible refuses a value that the quantity cannot have.
func possible(q surge.Quantity, value float64) error {
	k, is := kinds[q]
	if !is {
		return fmt.Errorf("quantity %q is none of %v", q, surge.Quantities)
	}
	if value >= k.least && value <= k.most {
		return nil
	}
	return fmt.Errorf("%s %v%s is out of range: %v to %v%s", q, value, k.unit, k.least, k.most, k.unit) // NaN, too
}

// fills stand for "no value" in products of SWPC and of services that pass them on: none of them is a value of any quantity.
var fills = []float64{-999, -999.9, -9999, -9999.9, -99999, -99999.9, -1e31}

// earliest is before all times of any source. A time before the year 0, which seconds since 1970 can be, cannot be written into a status:
// the API server would refuse all of it.
var earliest = time.Date(1900, time.January, 1, 0, 0, 0, 0, time.UTC)

// readings collects the samples of an answer.
type readings struct {
	now    time.Time
	answer Answer
}

func newReadings(now time.Time) *readings {
	return &readings{now: now, answer: Answer{Samples: map[surge.Quantity][]surge.Sample{}}}
}

// add takes a value of a time, or refuses it. Values of a regular grid of times, such as minutes, belong to the interval in which
// their time is: spacecraft stamp a minute with a second of it.
func (r *readings) add(q surge.Quantity, at time.Time, lasts time.Duration, value float64, spacecraft string) {
	if slices.Contains(fills, value) {
		return
	}
	if err := possible(q, value); err != nil {
		r.refuse("of %s: %v", at.Format(time.RFC3339), err)
		return
	}
	if at.Before(earliest) {
		r.refuse("%s %v%s of %s: nothing was published before %s", q, value, kinds[q].unit, at.Format(time.RFC3339), earliest.Format(time.RFC3339))
		return
	}
	if surge.Ahead(at, r.now) {
		r.answer.Early = true
		r.refuse("%s %v%s of %s, a time to come: this clock says %s", q, value, kinds[q].unit, at.Format(time.RFC3339), r.now.UTC().Format(time.RFC3339))
		return
	}
	if day := 24 * time.Hour; day%lasts == 0 {
		at = at.Truncate(lasts)
	}
	r.answer.Samples[q] = append(r.answer.Samples[q], surge.Sample{From: at.UTC(), To: at.UTC().Add(lasts), Value: value, Spacecraft: spacecraft})
}

func (r *readings) refuse(format string, args ...any) {
	if r.answer.Refused.Samples++; r.answer.Refused.Samples == 1 {
		r.answer.Refused.First = fmt.Sprintf(format, args...)
	}
}

// done returns the answer; an error if it has no sample.
func (r *readings) done() (Answer, error) {
	if len(r.answer.Samples) > 0 {
		return r.answer, nil
	}
	if refused := r.answer.Refused; refused.Samples > 0 {
		return r.answer, fmt.Errorf("has no usable sample; the first of %d that were refused: %s", refused.Samples, refused.First)
	}
	return r.answer, errors.New("has records, but none with a value: if that lasts, declare another source")
}

// number reads a value of JSON, a number or text that is one. Is is false if there is no value: null or empty text.
func number(raw any) (value float64, is bool, err error) {
	var text string
	switch raw := raw.(type) {
	case nil:
		return 0, false, nil
	case json.Number:
		text = raw.String()
	case string:
		if text = strings.TrimSpace(raw); text == "" {
			return 0, false, nil
		}
	default:
		return 0, false, fmt.Errorf("%.40q is not a number", fmt.Sprint(raw))
	}
	value, err = strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%.40q is not a number", text)
	}
	return value, true, nil
}

// layouts of times; the first one has a zone. Without one they are UTC.
var layouts = []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04Z07:00", "2006-01-02T15:04"}

// timeOf reads a time of JSON as SWPC writes it ("2024-05-10 21:00:00.000", "2026-08-07T01:24:02", either with a Z), or as seconds or
// milliseconds since 1970.
func timeOf(raw any) (time.Time, error) {
	switch raw := raw.(type) {
	case string:
		text := strings.TrimSpace(raw)
		if len(text) > 10 && text[10] == ' ' {
			text = text[:10] + "T" + text[11:]
		}
		for _, layout := range layouts {
			if at, err := time.Parse(layout, text); err == nil {
				return at.UTC(), nil
			}
		}
	case json.Number:
		// Seconds of this size are of the year 5138.
		const milliseconds = 1e11
		seconds, err := raw.Float64()
		if err == nil && math.Abs(seconds) >= milliseconds {
			seconds /= 1000
		}
		if err == nil && math.Abs(seconds) < milliseconds {
			return time.UnixMilli(int64(seconds * 1000)).UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time: RFC 3339 is, as 2026-03-17T21:00:00Z", fmt.Sprint(raw))
}

// named returns a spacecraft's name for the status, which must not have text of any length or kind.
func named(raw any) string {
	name, _ := raw.(string)
	name = strings.TrimSpace(name)
	if len(name) > 32 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return ""
	}
	return name
}
