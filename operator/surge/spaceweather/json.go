// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"github.com/substorm/substorm/operator/surge"
)

// JSONConfig says where a document has which quantity.
type JSONConfig struct {
	URL string
	// Values are paths of quantities, in the JSONPath of kubectl, as {.data[*].kp}. A path may lead to many values.
	Values map[surge.Quantity]string
	// Time is the path of the times of the values: as many as each path of Values leads to, in the same order. If it is empty, values are
	// of the time at which they were answered; whether they are old cannot be known then.
	Time string
	// Lasts is how long a value is valid from its time on; 0: three hours for Kp, a minute for others.
	Lasts time.Duration
}

// maxPath bounds a path, and minLasts a value.
const (
	maxPath  = 256
	minLasts = time.Second
)

// document reads quantities of any JSON document over HTTP.
type document struct {
	cfg   JSONConfig
	fetch *fetcher
}

// NewJSON returns a source that reads a JSON document.
func NewJSON(cfg JSONConfig) (Source, error) {
	fetch, err := newFetcher(cfg.URL)
	if err != nil {
		return nil, err
	}
	if len(cfg.Values) == 0 {
		return nil, fmt.Errorf("no path is set: set one of %v", surge.Quantities)
	}
	for q, path := range cfg.Values {
		if _, is := kinds[q]; !is {
			return nil, fmt.Errorf("quantity %q is none of %v", q, surge.Quantities)
		}
		if err := validPath(path); err != nil {
			return nil, fmt.Errorf("path of %s: %w", q, err)
		}
	}
	if cfg.Time != "" {
		if err := validPath(cfg.Time); err != nil {
			return nil, fmt.Errorf("path of the time: %w", err)
		}
	}
	if cfg.Lasts != 0 && cfg.Lasts < minLasts {
		return nil, fmt.Errorf("a value cannot last %v: %v is the least", cfg.Lasts, minLasts)
	}
	return &document{cfg: cfg, fetch: fetch}, nil
}

// validPath refuses paths that JSONPath does not read, and paths that visit a value more than once: with ".." or lists of names, few
// characters can lead to millions of results in a document made for it.
func validPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("longer than %d characters", maxPath)
	}
	if strings.Contains(path, "..") || strings.Contains(path, ",") || strings.Count(path, "{") > 1 {
		return fmt.Errorf("%q leads to more than one place: name one, without \"..\", commas, or a second pair of braces", path)
	}
	if !strings.HasPrefix(path, "{") || !strings.HasSuffix(path, "}") {
		return fmt.Errorf("%q is not in braces, as {.data[*].kp} is", path)
	}
	_, err := parsePath(path)
	return err
}

// Quantities implements Source.
func (d *document) Quantities() []surge.Quantity { return declared(d.cfg.Values) }

// declared are the quantities of a map in the order of surge.Quantities.
func declared[V any](of map[surge.Quantity]V) []surge.Quantity {
	return slices.DeleteFunc(slices.Clone(surge.Quantities), func(q surge.Quantity) bool {
		return !slices.Contains(slices.Collect(maps.Keys(of)), q)
	})
}

// Ask implements Source.
func (d *document) Ask(ctx context.Context, now time.Time) (Answer, error) {
	if d.cfg.Time == "" {
		// A value without a time has the time of its answer. "Not modified" would be no such answer, and the value would get old while it is valid.
		d.fetch.known = validators{}
	}
	return d.fetch.ask(ctx, now, func(body []byte) (Answer, error) { return d.read(body, now) })
}

func (d *document) read(body []byte, now time.Time) (Answer, error) {
	if err := bounded(body); err != nil {
		return Answer{}, err
	}
	var whole any
	if err := decode(body, &whole); err != nil {
		return Answer{}, notRead(err)
	}
	var times []any
	if d.cfg.Time != "" {
		var err error
		if times, err = values(d.cfg.Time, whole); err != nil {
			return Answer{}, fmt.Errorf("has no times at %s: %w", d.cfg.Time, err)
		}
	}
	r := newReadings(now)
	for _, q := range d.Quantities() {
		found, err := values(d.cfg.Values[q], whole)
		if err != nil {
			return Answer{}, fmt.Errorf("has no %s at %s: %w", q, d.cfg.Values[q], err)
		}
		if d.cfg.Time != "" && len(found) != len(times) {
			return Answer{}, fmt.Errorf("has %d values of %s at %s and %d times at %s: the paths must lead to as many of both, and each record must have both",
				len(found), q, d.cfg.Values[q], len(times), d.cfg.Time)
		}
		d.add(r, q, found, times)
	}
	return r.done()
}

// add takes the values of a quantity.
func (d *document) add(r *readings, q surge.Quantity, found, times []any) {
	lasts := d.cfg.Lasts
	if lasts == 0 {
		lasts = kinds[q].lasts
	}
	for i, raw := range found {
		value, is, err := number(raw)
		at := r.now
		if err == nil && times != nil {
			at, err = timeOf(times[i])
		}
		if err != nil {
			r.refuse("%s: %v", q, err)
			continue
		}
		if is {
			r.add(q, at, lasts, value, "")
		}
	}
}

// parsePath parses a path. Any user who may declare a Site writes paths; a path that makes the library panic must not end the operator.
func parsePath(path string) (j *jsonpath.JSONPath, err error) {
	defer recovered(&err)
	j = jsonpath.New("path")
	if err := j.Parse(path); err != nil {
		return nil, fmt.Errorf("%q is not a JSONPath as kubectl reads it: %w", path, err)
	}
	return j, nil
}

// recovered makes an error of a panic.
func recovered(err *error) {
	if broken := recover(); broken != nil {
		*err = fmt.Errorf("the path cannot be followed: %v", broken)
	}
}

// values are the results of a path. The path is parsed each time, because the library changes the parsed path as it follows it.
func values(path string, whole any) (found []any, err error) {
	defer recovered(&err)
	j, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	results, err := j.FindResults(whole)
	if err != nil {
		return nil, withoutValue(err)
	}
	for _, result := range results {
		for _, one := range result {
			found = append(found, plain(one))
		}
	}
	return found, nil
}

// withoutValue is an error of a path without the value that the library writes into one of them: the whole document, maybe.
func withoutValue(err error) error {
	if strings.HasSuffix(err.Error(), "cannot be filtered") {
		return errors.New("the filtered value is not an array")
	}
	return err
}

// plain is the value of a path's result.
func plain(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	return v.Interface()
}
