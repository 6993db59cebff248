// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/latest"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/observing"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// viewAge is how long a view holds for all who see the same.
	viewAge = time.Second
	// maxViews of different readers are kept.
	maxViews = 256
	// toldEvery is how often the page is notified that data still flows: ten thousand instruments
	// with a cadence of a second would fill the client's link.
	toldEvery = 10 * time.Second
	// maxPictures and maxDatasets are shown, and maxFeeds linked to.
	maxPictures, maxDatasets, maxFeeds = 12, 100, 100
	// pageFormat is the version of the page as JSON, and of events.
	pageFormat = 1
)

// row is an instrument as one reader sees it.
type row struct {
	Name    string `json:"name"`
	Type    string `json:"type,omitempty"`
	Station string `json:"station,omitempty"`
	// Origin is the code of the Site that it is an instrument of; absent: of this one.
	Origin string `json:"origin,omitempty"`
	// State is a reason of the condition DataFlowing, or one of this package's.
	State         string `json:"state"`
	CadenceMillis int64  `json:"cadenceMillis,omitempty"`
	// Received is when data last arrived, as last sent to pages.
	Received *time.Time `json:"received,omitempty"`
	Picture  *picture   `json:"picture,omitempty"`
	Datasets []dataset  `json:"datasets,omitempty"`
	License  string     `json:"license,omitempty"`
	Credit   string     `json:"credit,omitempty"`
	// Objects: it sends more than datagrams, and has a newest object.
	Objects bool `json:"objects,omitempty"`

	// DueMillis is how long after Received new data is overdue, as far as a page can judge by itself: its data may be older than
	// the data here. 0: a page cannot judge it.
	DueMillis int64 `json:"-"`

	// changed is when the row was last another.
	changed time.Time
}

// picture is an instrument's newest object if that is a picture.
type picture struct {
	URL string `json:"url"`
	// At is when it was observed, else received.
	At time.Time `json:"at"`
}

// view is what one reader, and every reader with the same rights, sees of a Site. It does not
// change.
type view struct {
	site     string
	reader   string
	snapshot *registry.Snapshot
	// made is when it was looked at, at when it was last another.
	made, at time.Time
	rows     []row
	feeds    []string
	// weather is the level of space weather, which was another until weatherAt.
	weather   weather
	weatherAt time.Time
	// more: there are instruments that the client may not see.
	more bool
	// layout changes with which instruments there are, and tag with all that is shown.
	layout, tag string

	*rendered
}

// rendered is a page, rendered at the first request.
type rendered struct {
	once   sync.Once
	html   []byte
	failed error
}

// newView looks at the Site. If nothing changed, the result keeps the time and the rendered page of the view before it.
func newView(site string, v *endpoint.Request, now seen, previous *view) *view {
	made := time.Now()
	current := &view{site: site, reader: v.Reader.String(), snapshot: v.Snapshot, made: made, at: made, rendered: &rendered{}}
	before := map[string]row{}
	if previous != nil {
		for _, r := range previous.rows {
			before[r.Name] = r
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Snapshot.Instruments)) {
		in := v.Snapshot.Instruments[name]
		if access.Decide(access.Archive, v.Reader, name, in.Access, time.Time{}, v.Now) != access.Granted {
			current.more = true
			continue
		}
		r := newRow(v, in, now)
		r.changed = made
		if old, known := before[name]; known {
			r.keep(old)
		}
		current.rows = append(current.rows, r)
	}
	slices.SortStableFunc(current.rows, func(a, b row) int { return cmp.Compare(a.Station, b.Station) })
	current.feeds = feedsOf(v)
	current.weather, current.weatherAt = newWeather(now.level, made), made
	if previous != nil && reflect.DeepEqual(previous.weather, current.weather) {
		current.weatherAt = previous.weatherAt
	}
	current.sum()
	if previous != nil && previous.tag == current.tag {
		current.at, current.rendered = previous.at, previous.rendered
	}
	return current
}

// newRow is an instrument as the client may see it: nothing of what is under embargo.
func newRow(v *endpoint.Request, in wire.InstrumentEntry, now seen) row {
	r := row{Name: in.Instrument, Station: in.Station, Origin: in.Origin, State: underEmbargo, CadenceMillis: in.CadenceMillis, Objects: len(in.Listeners) == 0 || sendsObjects(&in)}
	if in.About != nil {
		r.Type = in.About.Type
	}
	if in.Rights != nil {
		r.License, r.Credit = in.Rights.License, in.Rights.Credit
	}
	live := access.Decide(access.Live, v.Reader, in.Instrument, in.Access, v.Now, v.Now) == access.Granted
	for i := range in.Channels {
		if d, ok := newDataset(&in, &in.Channels[i]); ok {
			d.Live = live && in.Channels[i].Datagrams != ""
			r.Datasets = append(r.Datasets, d)
		}
	}
	if v.Embargoed(in) {
		return r
	}
	last := now.last[in.Instrument]
	r.State = stateOf(&in, last, now.reported[in.Gateway], v.Now)
	if in.Observes == nil && in.Origin == "" && in.CadenceMillis > 0 {
		r.DueMillis = (observing.Due(time.Duration(in.CadenceMillis)*time.Millisecond) + toldEvery + aliveEvery).Milliseconds()
	}
	if !last.IsZero() {
		last = last.UTC().Truncate(time.Second)
		r.Received = &last
	}
	if p, is := now.pictures[in.Instrument]; is && v.Sees(in, p.ObservedEnd()) {
		r.Picture = &picture{URL: latest.URL(in, &p), At: p.When().UTC()}
	}
	return r
}

// keep leaves a row as it was last sent if the only news is that data still arrives.
func (r *row) keep(old row) {
	samePicture := r.Picture == nil && old.Picture == nil || r.Picture != nil && old.Picture != nil && *r.Picture == *old.Picture
	soon := r.Received == nil && old.Received == nil || r.Received != nil && old.Received != nil && r.Received.Sub(*old.Received) < toldEvery
	if r.State == old.State && samePicture && soon {
		r.Received, r.changed = old.Received, old.changed
	}
}

// feedsOf are the Feeds in which the reader may read anything.
func feedsOf(v *endpoint.Request) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v.Snapshot.Feeds)) {
		feed := v.Snapshot.Feeds[name]
		readable := slices.ContainsFunc(feed.Instruments, func(instrument string) bool {
			in, known := v.Snapshot.Instruments[instrument]
			entry := in.Access.InForce()
			entry.Archive = access.Narrower(entry.Archive, feed.Live)
			return known && access.Decide(access.Archive, v.Reader, instrument, &entry, time.Time{}, v.Now) == access.Granted
		})
		if readable && len(names) < maxFeeds {
			names = append(names, name)
		}
	}
	return names
}

// sum computes the hashes that distinguish the view from others.
func (v *view) sum() {
	layout, all := sha256.New(), sha256.New()
	_ = json.NewEncoder(all).Encode([]any{v.site, v.reader, v.more, v.feeds, v.rows, v.weather})
	for _, r := range v.rows {
		r.State, r.Received, r.Picture = "", nil, nil
		_ = json.NewEncoder(layout).Encode(r)
	}
	v.layout, v.tag = hex.EncodeToString(layout.Sum(nil)[:8]), hex.EncodeToString(all.Sum(nil)[:16])
}

// since are the rows that changed after an instant.
func (v *view) since(at time.Time) []row {
	var changed []row
	for _, r := range v.rows {
		if r.changed.After(at) {
			changed = append(changed, r)
		}
	}
	return changed
}

// declared is the weather where the Site has levels.
func (v *view) declared() *weather {
	if !v.weather.Declared {
		return nil
	}
	return &v.weather
}

// json is the view for programs.
func (v *view) json() []byte {
	rows := v.rows
	if rows == nil {
		rows = []row{}
	}
	text, _ := json.Marshal(struct {
		Format       int       `json:"format"`
		Site         string    `json:"site"`
		At           time.Time `json:"at"`
		SpaceWeather *weather  `json:"spaceWeather,omitempty"`
		Instruments  []row     `json:"instruments"`
	}{pageFormat, v.site, v.at.UTC().Truncate(time.Second), v.declared(), rows})
	return append(text, '\n')
}

// writeJSON writes the view for programs.
func (v *view) writeJSON(w *bufio.Writer) error {
	_, err := w.Write(v.json())
	return err
}

// writeHTML writes the page, which is rendered at the first request.
func (v *view) writeHTML(w *bufio.Writer) error {
	v.once.Do(func() {
		var b bytes.Buffer
		v.failed = page.Execute(&b, newPageData(v))
		v.html = b.Bytes()
	})
	if v.failed != nil {
		return v.failed
	}
	_, err := w.Write(v.html)
	return err
}

// pathEscape writes a name as a part of a URL's path.
func pathEscape(name string) string { return url.PathEscape(name) }
