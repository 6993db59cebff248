// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// eventsEvery is how often changes are sent.
	eventsEvery = time.Second
	// aliveEvery is how often a page hears something where nothing changes: it takes a silence of three times that for a server
	// that is away.
	aliveEvery = 10 * time.Second
	// replicasDiffer is by how much two replicas may differ in when they saw something.
	replicasDiffer = 15 * time.Second
)

// update is the content of an event: what differs from the page's last state.
type update struct {
	Format int `json:"format"`
	// At is when it was found, in milliseconds since 1970.
	At int64 `json:"at"`
	// Now is the server's clock, in milliseconds since 1970.
	Now int64 `json:"now"`
	// Layout differs if the instruments do.
	Layout string    `json:"layout"`
	Rows   []updated `json:"rows,omitempty"`
	// SpaceWeather is set if it changed.
	SpaceWeather *weather `json:"spaceWeather,omitempty"`
	// Line is what came of the dataset that was asked for.
	Line json.RawMessage `json:"line,omitempty"`
}

// alive is the event that is sent if nothing changed for a while.
type alive struct {
	Format int   `json:"format"`
	Now    int64 `json:"now"`
}

// updated is a row that changed.
type updated struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Received is in milliseconds since 1970; 0: never.
	Received int64    `json:"received,omitempty"`
	Picture  *picture `json:"picture,omitempty"`
}

// serveEvents sends a page its changes. The query has ?since=, when the page was made in
// milliseconds since 1970, and ?line=, the dataset that it draws.
func (c *Console) serveEvents(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	c.board.waitSettled(v.Context(), v.Snapshot)
	e := &events{c: c, v: v, dataset: v.URL.Query().Get("line")}
	text := v.Request.Header.Get("Last-Event-ID")
	if text == "" {
		text = v.URL.Query().Get("since")
	}
	if at, err := strconv.ParseInt(text, 10, 64); err == nil && at > 0 {
		e.told = time.UnixMilli(at).Add(-replicasDiffer)
	}
	defer e.leaveLine()
	ctx, cancel := context.WithCancel(v.Context())
	defer cancel()
	return endpoint.Follow(v, ticks(ctx), e.event)
}

// ticks come at once and then every eventsEvery.
func ticks(ctx context.Context) <-chan time.Time {
	out := make(chan time.Time)
	go func() {
		ticker := time.NewTicker(eventsEvery)
		defer ticker.Stop()
		for now := time.Now(); ; {
			select {
			case out <- now:
			case <-ctx.Done():
				return
			}
			select {
			case now = <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// events are the events of one page.
type events struct {
	c *Console
	v *endpoint.Request
	// told is the time up to which the page knows all changes, and layout the layout that was sent
	// to it.
	told   time.Time
	layout string
	// heard is when the last event was sent to the page.
	heard time.Time
	// dataset that the page draws, and its line; nil if there is none.
	dataset string
	line    *line
	changes uint64
}

// event is what changed; nil: nothing did.
func (e *events) event(now time.Time) (*endpoint.Event, error) {
	if p := e.v.Renew(); p != nil {
		return nil, endpoint.ErrOver
	}
	e.c.board.keep(e.v.Snapshot)
	view := e.c.view(e.v)
	u := update{Format: pageFormat, At: view.at.UnixMilli(), Now: now.UnixMilli(), Layout: view.layout}
	for _, r := range view.since(e.told) {
		row := updated{Name: r.Name, State: r.State, Picture: r.Picture}
		if r.Received != nil {
			row.Received = r.Received.UnixMilli()
		}
		u.Rows = append(u.Rows, row)
	}
	if view.weatherAt.After(e.told) {
		u.SpaceWeather = &view.weather
	}
	var err error
	if u.Line, err = e.drawn(); err != nil {
		return nil, err
	}
	if len(u.Rows) == 0 && u.SpaceWeather == nil && u.Line == nil && e.layout == view.layout {
		if now.Sub(e.heard) < aliveEvery {
			return nil, nil
		}
		e.heard = now
		data, err := json.Marshal(alive{Format: pageFormat, Now: now.UnixMilli()})
		return &endpoint.Event{Kind: "alive", Data: data}, err
	}
	e.told, e.layout, e.heard = view.at, view.layout, now
	data, err := json.Marshal(u)
	return &endpoint.Event{Kind: "update", ID: strconv.FormatInt(u.At, 10), Data: data}, err
}

// drawn are the points that came of the dataset that the page draws; nil: none did. Error:
// endpoint.ErrOver, where the page is to ask again.
func (e *events) drawn() (json.RawMessage, error) {
	if e.dataset == "" {
		return nil, nil
	}
	instrument, name, _ := strings.Cut(e.dataset, "/")
	in, known := e.v.Snapshot.Instruments[instrument]
	i := slices.IndexFunc(in.Channels, func(c wire.ChannelEntry) bool { return c.Name == name })
	if !known || i < 0 || access.Decide(access.Live, e.v.Reader, instrument, in.Access, e.v.Now, e.v.Now) != access.Granted {
		if e.line != nil {
			return nil, endpoint.ErrOver
		}
		return nil, nil
	}
	if e.line == nil {
		set, ok := newDataset(&in, &in.Channels[i])
		if !ok || in.Channels[i].Datagrams == "" {
			return nil, nil
		}
		var err error
		if e.line, err = e.c.lines.follow(&in, in.Channels[i], set); err != nil {
			e.c.cfg.Logger.Debug("cannot follow the dataset", "dataset", e.dataset, "error", err)
			e.dataset = ""
			return nil, nil
		}
	}
	if !e.c.lines.follows(e.line, &in.Channels[i]) {
		return nil, endpoint.ErrOver
	}
	text, changes := e.line.since(e.changes, e.v.Now)
	e.changes = changes
	if text == nil {
		return nil, nil
	}
	e.v.Share(instrument, int64(len(text)))
	return append(append([]byte{'['}, text...), ']'), nil
}

func (e *events) leaveLine() {
	if e.line != nil {
		e.c.lines.leave(e.line)
	}
}
