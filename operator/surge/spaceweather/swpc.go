// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// URLs of SWPC's products. Those of the real-time solar wind have a day of minutes of each spacecraft and about 2 MB.
//
// The products below /products/solar-wind (mag-1-day.json, plasma-1-day.json), which older programs read, were removed in 2026
// (NWS Service Change Notice 26-21). Copies of them are still read.
const (
	KpURL    = "https://services.swpc.noaa.gov/products/noaa-planetary-k-index.json"
	BzURL    = "https://services.swpc.noaa.gov/json/rtsw/rtsw_mag_1m.json"
	SpeedURL = "https://services.swpc.noaa.gov/json/rtsw/rtsw_wind_1m.json"
)

// swpcKind is how SWPC publishes a quantity.
type swpcKind struct {
	url string
	// columns are the names that its products have for it; each product has one of them.
	columns []string
}

var swpcKinds = map[surge.Quantity]swpcKind{
	surge.Kp:    {url: KpURL, columns: []string{estimatedKp, "Kp", "kp"}},
	surge.Bz:    {url: BzURL, columns: []string{"bz_gsm"}},
	surge.Speed: {url: SpeedURL, columns: []string{"proton_speed", "speed"}},
}

// estimatedKp is the column of json/planetary_k_index_1m.json with the Kp that would result if its three hours ended now, each minute.
// Beside it "kp" is text such as 6P.
const estimatedKp = "estimated_kp"

// swpc reads one quantity of a product of SWPC.
type swpc struct {
	quantity surge.Quantity
	fetch    *fetcher
}

// NewSWPC returns a source of a quantity, which reads a product of SWPC or a copy of one; url is empty for SWPC's own.
func NewSWPC(quantity surge.Quantity, url string) (Source, error) {
	k, is := swpcKinds[quantity]
	if !is {
		return nil, fmt.Errorf("SWPC: quantity %q is none of %v", quantity, surge.Quantities)
	}
	if url == "" {
		url = k.url
	}
	fetch, err := newFetcher(url)
	if err != nil {
		return nil, err
	}
	return &swpc{quantity: quantity, fetch: fetch}, nil
}

// Quantities implements Source.
func (s *swpc) Quantities() []surge.Quantity { return []surge.Quantity{s.quantity} }

// Ask implements Source.
func (s *swpc) Ask(ctx context.Context, now time.Time) (Answer, error) {
	return s.fetch.ask(ctx, now, func(body []byte) (Answer, error) { return parseSWPC(body, s.quantity, now) })
}

// changed ends the texts of errors of a document with another shape.
const changed = "if its publisher changed it, an update of Substorm may read it; until then declare another source"

var errShape = errors.New("is not an array of records as SWPC publishes them: " + changed)

// record is one of SWPC's.
type record struct {
	at         time.Time
	lasts      time.Duration
	value      float64
	spacecraft string
	active     bool
}

// parseSWPC reads the answers of SWPC.
//
//   - Until March 2026 a product was an array of arrays. The first has the names of the columns, and all values are text:
//     [["time_tag","Kp","a_running","station_count"],["2024-05-10 21:00:00.000","9.00","400","8"]].
//   - Since then it is an array of objects with numbers: [{"time_tag":"2026-08-30T18:00:00","Kp":2.33,"a_running":9,"station_count":8}].
//     Those of the real-time solar wind begin with the newest record, and have "active" and "source": the spacecraft (SOLAR1, ACE, IMAP,
//     DSCOVR). SWPC declares one of them to be in operation. Their times may fall within a minute ("2026-08-07T01:24:02").
//
// The planetary K index each minute is of the latter shape:
// [{"time_tag":"2026-08-30T18:04:00","kp_index":2,"estimated_kp":2.33,"kp":"2P"}].
//
// A time without a zone is UTC. The time of Kp is the beginning of its three hours.
func parseSWPC(body []byte, quantity surge.Quantity, now time.Time) (Answer, error) {
	if err := bounded(body); err != nil {
		return Answer{}, err
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(body, &rows); err != nil {
		return Answer{}, notRead(err)
	}
	if len(rows) == 0 {
		return Answer{}, errors.New("is an array without records: if that lasts, declare another source")
	}
	fields := objects
	if bytes.HasPrefix(bytes.TrimSpace(rows[0]), []byte("[")) {
		var err error
		if fields, err = table(rows[0]); err != nil {
			return Answer{}, err
		}
		rows = rows[1:]
	}
	r := newReadings(now)
	records, recognized := r.records(rows, fields, quantity)
	if !recognized {
		return Answer{}, fmt.Errorf("has no record with time_tag and %s: %s", strings.Join(swpcKinds[quantity].columns, " or "), changed)
	}
	for _, one := range inOperation(records) {
		r.add(quantity, one.at, one.lasts, one.value, one.spacecraft)
	}
	return r.done()
}

// records reads rows. Recognized says whether any has a time and a column of the quantity, be it without a value.
func (r *readings) records(rows []json.RawMessage, fields func(json.RawMessage) map[string]any, quantity surge.Quantity) (all []record, recognized bool) {
	columns := swpcKinds[quantity].columns
	for _, row := range rows {
		values := fields(row)
		column := slices.IndexFunc(columns, func(name string) bool { _, is := values[name]; return is })
		tag, timed := values["time_tag"]
		if column < 0 || !timed {
			r.refuse("a record without time_tag or %s: %.80q", strings.Join(columns, " or "), row)
			continue
		}
		recognized = true
		value, is, err := number(values[columns[column]])
		at, timeErr := timeOf(tag)
		if err = errors.Join(err, timeErr); err != nil {
			r.refuse("%s: %v", columns[column], err)
			continue
		}
		if !is {
			continue
		}
		lasts := kinds[quantity].lasts
		if columns[column] == estimatedKp {
			lasts = time.Minute
		}
		all = append(all, record{at: at, lasts: lasts, value: value, spacecraft: named(values["source"]), active: truth(values["active"])})
	}
	slices.SortStableFunc(all, func(a, b record) int { return a.at.Compare(b.at) })
	return all, recognized
}

// objects reads a record that names its fields. Some records have 30 fields; only those that are needed are decoded.
func objects(row json.RawMessage) map[string]any {
	var o struct {
		TimeTag     json.RawMessage `json:"time_tag"`
		Source      json.RawMessage `json:"source"`
		Active      json.RawMessage `json:"active"`
		EstimatedKp json.RawMessage `json:"estimated_kp"`
		Kp          json.RawMessage `json:"Kp"` // and kp
		BzGSM       json.RawMessage `json:"bz_gsm"`
		ProtonSpeed json.RawMessage `json:"proton_speed"`
		Speed       json.RawMessage `json:"speed"`
	}
	if json.Unmarshal(row, &o) != nil {
		return nil
	}
	values := map[string]any{}
	for name, raw := range map[string]json.RawMessage{
		"time_tag": o.TimeTag, "source": o.Source, "active": o.Active, estimatedKp: o.EstimatedKp, "Kp": o.Kp, "bz_gsm": o.BzGSM, "proton_speed": o.ProtonSpeed, "speed": o.Speed,
	} {
		if raw != nil { // null is no nil
			values[name] = scalar(raw)
		}
	}
	return values
}

// table returns a function that reads the rows below a row of names.
func table(header json.RawMessage) (func(json.RawMessage) map[string]any, error) {
	var names []string
	if json.Unmarshal(header, &names) != nil {
		return nil, errors.New("has no names of columns in its first row: " + changed)
	}
	return func(row json.RawMessage) map[string]any {
		var cells []json.RawMessage
		if json.Unmarshal(row, &cells) != nil {
			return nil
		}
		values := map[string]any{}
		for i, cell := range cells[:min(len(cells), len(names))] {
			values[names[i]] = scalar(cell)
		}
		return values
	}, nil
}

// truth reads a flag.
func truth(raw any) bool {
	switch raw := raw.(type) {
	case bool:
		return raw
	case json.Number:
		return raw == "1"
	case string:
		return raw == "1" || strings.EqualFold(raw, "true")
	}
	return false
}

// inOperation are the records of the spacecraft in operation. SWPC has published days without any: then they are those of the spacecraft
// with the most records, because a signal that changes from one instrument to another each minute is unusable.
func inOperation(records []record) []record {
	count, active := map[string]int{}, 0
	for _, one := range records {
		count[one.spacecraft]++
		if one.active {
			active++
		}
	}
	if len(records) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(count))
	chosen := slices.MaxFunc(names, func(a, b string) int { return count[a] - count[b] })
	return slices.DeleteFunc(records, func(one record) bool {
		if active > 0 {
			return !one.active
		}
		return one.spacecraft != chosen
	})
}
