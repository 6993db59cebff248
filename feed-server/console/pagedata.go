// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// pageData is what the page's template reads.
type pageData struct {
	Site, Reader, Layout string
	// At is when what is shown was found, in milliseconds since 1970.
	At int64
	assetFiles
	Anonymous, More bool
	Weather         weather
	States          []counted
	Stations        []station
	Instruments     int
	Pictures        []shownRow
	// Awaited: there is no picture, and one may come.
	Awaited  bool
	Datasets []dataset
	Feeds    []string
}

// counted is how many instruments have a state.
type counted struct {
	State
	Count int
}

// station is a place in the field, and its instruments.
type station struct {
	Name string
	Rows []shownRow
}

// shownRow is a row as the template reads it.
type shownRow struct {
	row
	State State
}

func newPageData(v *view) pageData {
	d := pageData{Site: v.site, Reader: v.reader, Layout: v.layout, At: v.at.UnixMilli(), assetFiles: assets, Anonymous: v.reader == "", More: v.more, Weather: v.weather,
		Instruments: len(v.rows), Feeds: v.feeds}
	at := map[string]int{}
	for i, s := range states {
		at[s.Reason] = i
		d.States = append(d.States, counted{State: s})
	}
	for i := range v.rows {
		r := &v.rows[i]
		shown := shownRow{*r, states[at[r.State]]}
		d.States[at[r.State]].Count++
		if n := len(d.Stations); n == 0 || d.Stations[n-1].Name != r.Station {
			d.Stations = append(d.Stations, station{Name: r.Station})
		}
		last := &d.Stations[len(d.Stations)-1]
		last.Rows = append(last.Rows, shown)
		d.Awaited = d.Awaited || r.Objects
		if r.Picture != nil && len(d.Pictures) < maxPictures {
			d.Pictures = append(d.Pictures, shown)
		}
		d.Datasets = append(d.Datasets, r.Datasets[:min(len(r.Datasets), maxDatasets-len(d.Datasets))]...)
	}
	d.Datasets = liveFirst(d.Datasets, v.rows)
	return d
}

// liveFirst moves the first live dataset, if possible of an instrument whose data arrives, to the
// front: it is shown first.
func liveFirst(all []dataset, rows []row) []dataset {
	flows := map[string]bool{}
	for _, r := range rows {
		for _, d := range r.Datasets {
			flows[d.ID] = r.State == v1alpha1.ReasonFlowing
		}
	}
	i := slices.IndexFunc(all, func(d dataset) bool { return d.Live && flows[d.ID] })
	if i < 0 {
		i = slices.IndexFunc(all, func(d dataset) bool { return d.Live })
	}
	if i > 0 {
		all = slices.Concat(all[i:i+1], all[:i], all[i+1:])
	}
	return all
}

// Path is the instrument's name in the path of a URL.
func (r row) Path() string { return pathEscape(r.Name) }

// Every says how often data is due.
func (r row) Every() string {
	d := time.Duration(r.CadenceMillis) * time.Millisecond
	switch {
	case d <= 0:
		return ""
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%g s", d.Seconds())
	}
}

// UTC is a time as pages show it.
func (r row) UTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// Machine is a time as HTML reads it.
func (r row) Machine(t time.Time) string { return t.UTC().Format(time.RFC3339) }
