// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// maxRows bounds a recorded file: a year has 527,040 minutes at most.
const maxRows = 600_000

// maxFile bounds it in bytes, because a row may have any length.
const maxFile = 64 << 20

// columns of a recorded file beside its time.
var columns = map[string]surge.Quantity{"kp": surge.Kp, "bz": surge.Bz, "speed": surge.Speed}

// RecordedConfig says how a recorded file is played.
type RecordedConfig struct {
	// Start is when the time of the file's first row is played; zero: the file is played in its own times.
	Start time.Time
	// SpeedUp is how many times as fast as recorded; 0: 1.
	SpeedUp float64
	// Delay is how long after its end a sample becomes known, in times of the file.
	Delay time.Duration
}

// Recorded replays a file: at each time it returns the samples that would be known then.
type Recorded struct {
	cfg     RecordedConfig
	samples map[surge.Quantity][]surge.Sample // in times of the file
	first   time.Time
	told    map[surge.Quantity]int
}

// row is a value of a recorded file, and where it is.
type row struct {
	value float64
	line  int
}

// NewRecorded reads a file of comma-separated values: a row of names, one of them time and the others kp, bz and speed; then rows with the
// beginning of an interval in RFC 3339 and values, which may be empty. Kp is of three hours; the others last to the next row. Each interval
// has one value: rows may repeat it, and none may have another. Lines that begin with # are comments. Errors name the line.
func NewRecorded(file io.Reader, cfg RecordedConfig) (*Recorded, error) {
	if cfg.SpeedUp == 0 {
		cfg.SpeedUp = 1
	}
	if !(cfg.SpeedUp > 0 && cfg.SpeedUp <= 1e6) || cfg.Delay < 0 {
		return nil, fmt.Errorf("invalid speed-up of %v or delay of %v: speed-ups are above 0 and at most 1000000, delays not below 0", cfg.SpeedUp, cfg.Delay)
	}
	bounded := &io.LimitedReader{R: file, N: maxFile}
	r, err := newRecorded(bounded, cfg)
	if bounded.N == 0 {
		return nil, fmt.Errorf("more than %d MiB: cut the file", maxFile>>20)
	}
	return r, err
}

func newRecorded(file io.Reader, cfg RecordedConfig) (*Recorded, error) {
	rows := csv.NewReader(file)
	rows.Comment, rows.TrimLeadingSpace, rows.ReuseRecord = '#', true, true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file has no row of names: the first row that is not a comment names the columns, such as time,kp")
	}
	if err != nil {
		return nil, err
	}
	names, err := recordedNames(header)
	if err != nil {
		return nil, err
	}
	r := &Recorded{cfg: cfg, samples: map[surge.Quantity][]surge.Sample{}, told: map[surge.Quantity]int{}}
	if err := r.read(rows, names); err != nil {
		return nil, err
	}
	for q := range r.samples {
		r.finish(q)
	}
	if r.cfg.Start.IsZero() {
		r.cfg.Start = r.first
	}
	return r, nil
}

// recordedNames checks a row of names.
func recordedNames(header []string) ([]string, error) {
	var names []string
	for _, name := range header {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if _, is := columns[name]; !is && name != "time" || slices.Contains(names, name) {
			return nil, fmt.Errorf("column %.40q: the columns are time and kp, bz, speed or some of them, each once", name)
		}
		names = append(names, name)
	}
	if !slices.Contains(names, "time") || len(names) < 2 {
		return nil, fmt.Errorf("columns %v: there must be time, and kp, bz or speed", names)
	}
	return names, nil
}

func (r *Recorded) read(rows *csv.Reader, names []string) error {
	at := slices.Index(names, "time")
	before := map[surge.Quantity]map[time.Time]row{}
	for _, q := range columns {
		before[q] = map[time.Time]row{}
	}
	for n := 0; ; n++ {
		fields, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		if n == maxRows {
			return fmt.Errorf("line %d: more than %d rows, which are a year of minutes: cut the file", line, maxRows)
		}
		when, err := timeOf(fields[at])
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if r.first.IsZero() || when.Before(r.first) {
			r.first = when
		}
		for i, name := range names {
			if i == at {
				continue
			}
			if err := r.add(columns[name], when, line, fields[i], before[columns[name]]); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
		}
	}
	if len(r.samples) == 0 {
		return errors.New("the file has no value")
	}
	return nil
}

// add adds a value unless a row before it, of the same interval, has it.
func (r *Recorded) add(q surge.Quantity, when time.Time, line int, text string, before map[time.Time]row) error {
	value, is, err := number(text)
	if err != nil || !is || slices.Contains(fills, value) {
		return err
	}
	if err := possible(q, value); err != nil {
		return err
	}
	if q == surge.Kp {
		when = when.Truncate(kinds[q].lasts)
	}
	if first, is := before[when]; is {
		if first.value == value {
			return nil
		}
		return fmt.Errorf("%s %v and the %v of line %d are of the same time: %s", q, value, first.value, first.line, keepOne(q, when))
	}
	before[when] = row{value, line}
	r.samples[q] = append(r.samples[q], surge.Sample{From: when, To: when.Add(kinds[q].lasts), Value: value})
	return nil
}

// keepOne says what to do about two values of one interval.
func keepOne(q surge.Quantity, when time.Time) string {
	if q != surge.Kp {
		return "remove one of the two"
	}
	return fmt.Sprintf("Kp has one value for each three hours, here from %s on; keep one of them, such as the greatest", when.Format(time.RFC3339))
}

// finish orders the samples of a quantity. A sample of the solar wind lasts as long as the shortest time between two rows, so that samples
// that are missing in a file are missing when it is replayed.
func (r *Recorded) finish(q surge.Quantity) {
	samples := merged(nil, r.samples[q])
	if q != surge.Kp && len(samples) > 1 {
		shortest := samples[1].From.Sub(samples[0].From)
		for i := range samples[1:] {
			shortest = min(shortest, samples[i+1].From.Sub(samples[i].From))
		}
		for i := range samples {
			samples[i].To = samples[i].From.Add(shortest)
		}
	}
	r.samples[q] = samples
}

// Quantities implements Source.
func (r *Recorded) Quantities() []surge.Quantity { return declared(r.samples) }

// Samples of a quantity, all that the file has, in its own times.
func (r *Recorded) Samples(q surge.Quantity) []surge.Sample { return r.samples[q] }

// Span is the time from the beginning of the first sample to the time when the last one is known, as it is played.
func (r *Recorded) Span() (from, to time.Time) {
	for samples := range maps.Values(r.samples) {
		if end := r.played(samples[len(samples)-1].To.Add(r.cfg.Delay)); end.After(to) {
			to = end
		}
	}
	return r.cfg.Start, to
}

// Ask implements Source: the samples that became known since it was asked before.
func (r *Recorded) Ask(_ context.Context, now time.Time) (Answer, error) {
	answer := Answer{Unchanged: true}
	for q, samples := range r.samples {
		later := func(s surge.Sample) bool { return r.played(s.To.Add(r.cfg.Delay)).After(now) }
		for r.told[q] > 0 && later(samples[r.told[q]-1]) { // the clock was ahead
			r.told[q]--
		}
		var known []surge.Sample
		for _, s := range samples[r.told[q]:] {
			if later(s) {
				break
			}
			known = append(known, surge.Sample{From: r.played(s.From), To: r.played(s.To), Value: s.Value})
		}
		if len(known) == 0 {
			continue
		}
		r.told[q] += len(known)
		if answer.Samples == nil {
			answer = Answer{Samples: map[surge.Quantity][]surge.Sample{}}
		}
		answer.Samples[q] = known
	}
	return answer, nil
}

// played is when a time of the file is played.
func (r *Recorded) played(t time.Time) time.Time {
	return r.cfg.Start.Add(time.Duration(float64(t.Sub(r.first)) / r.cfg.SpeedUp)).UTC()
}
