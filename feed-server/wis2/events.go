// SPDX-License-Identifier: Apache-2.0

package wis2

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Root is what the paths begin with: /wis2/<feed>/events.
	Root = "/wis2/"
	// batch is what is taken of a stream at a time.
	batchMessages, batchBytes = 64, 128 << 10

	openTimeout = 10 * time.Second
	firstPause  = 100 * time.Millisecond
	lastPause   = 5 * time.Second
)

// Config says what is served.
type Config struct {
	// Site is the Site's code.
	Site     string
	Registry func() *registry.Snapshot
	// Hub returns the hub that follows a stream, and Slots bound how many read a stream
	// behind that at a time.
	Hub         func(stream string) *hub.Hub
	Slots       *semaphore.Weighted
	AccessCheck *endpoint.AccessCheck
	Logger      *slog.Logger
}

// Events serves the messages of one Site to clients that follow its Feeds.
type Events struct{ cfg Config }

// NewEvents returns what answers at its Endpoints.
func NewEvents(cfg Config) *Events { return &Events{cfg} }

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (e *Events) Endpoints() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{Root + "{feed}/events": e.cfg.AccessCheck.Answer(e.serve)}
}

// serve sends each notice of a Feed, from now on or behind the event that a client had last.
func (e *Events) serve(v *endpoint.Request) *problem.Problem {
	name := v.PathValue("feed")
	if p := v.Ready(); p != nil {
		return p
	}
	feed, known := v.Snapshot.Feeds[name]
	if !known || feed.Notices == "" {
		return problem.New(http.StatusNotFound, "no Feed %s carries notices here", name)
	}
	if p := e.admit(v, feed); p != nil {
		return p
	}
	token, err := wire.ParseResumeToken(cmp.Or(v.Request.Header.Get("Last-Event-ID"), v.URL.Query().Get("resume")))
	if err != nil {
		return problem.New(http.StatusBadRequest, "%v", err)
	}
	f := &follower{e: e, v: v, feed: name}
	opening, cancel := context.WithTimeout(v.Context(), openTimeout)
	cursor, err := e.cfg.Hub(feed.Notices).Cursor(opening, token, e.cfg.Slots, f.wanted)
	cancel()
	switch {
	case errors.Is(err, hub.ErrNoPlace):
		return problem.New(http.StatusBadRequest, "%v", err)
	case err != nil:
		return problem.New(http.StatusServiceUnavailable, "the stream of the Feed does not answer: %v", err).After(endpoint.RetryAway)
	}
	came := make(chan given)
	ctx, stop := context.WithCancel(v.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cursor.Close()
		f.read(ctx, cursor, came)
	}()
	defer func() { stop(); <-ended }()
	return endpoint.Follow(v, came, f.event)
}

// admit returns the reason why the client may follow nothing of a Feed; nil: some of it.
func (e *Events) admit(v *endpoint.Request, feed wire.FeedEntry) *problem.Problem {
	needsReader := false
	for _, name := range feed.Instruments {
		switch v.Snapshot.Decide(feed, v.Reader, name, time.Time{}, v.Now) {
		case access.Granted:
			return nil
		case access.NeedsReader:
			needsReader = true
		}
	}
	switch {
	case len(feed.Instruments) == 0:
		return nil
	case needsReader:
		return problem.New(http.StatusUnauthorized, "nothing of Feed %s is for everybody: show a reader's token, as Authorization: Bearer … or as the password", feed.Feed)
	default:
		return problem.New(http.StatusForbidden, "%s may have nothing of Feed %s: see spec.access of its Instruments", v.Reader, feed.Feed)
	}
}

// given is what comes of a stream: a message, or what is missing.
type given struct {
	epoch   string
	message *hub.Message
	missing *hub.Missing
}

// follower is a client that follows a Feed.
type follower struct {
	e    *Events
	v    *endpoint.Request
	feed string

	// snapshot that selected was found in. They belong to the goroutine that reads the stream.
	snapshot *registry.Snapshot
	selected map[string]bool
	backfill bool
}

// wanted reports whether a Feed has a message.
func (f *follower) wanted(m *hub.Message) bool {
	if now := f.e.cfg.Registry(); now != f.snapshot {
		f.snapshot, f.selected, f.backfill = now, map[string]bool{}, now.Feeds[f.feed].Backfill
		for _, name := range now.Feeds[f.feed].Instruments {
			f.selected[name] = true
		}
	}
	return m.Kind == wire.RecordNotice && m.Site == f.e.cfg.Site && f.selected[m.Instrument] && (f.backfill || !m.Backfill)
}

// read passes on what comes, until ctx ends.
func (f *follower) read(ctx context.Context, cursor *hub.Cursor, out chan<- given) {
	for pause := firstPause; ctx.Err() == nil; {
		b, wait, ok, err := cursor.Poll(hub.Most{Messages: batchMessages, Bytes: batchBytes})
		if err != nil {
			f.e.cfg.Logger.Debug("cannot read a stream; retrying", "feed", f.feed, "error", err)
			retry.Sleep(ctx, pause)
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		if !ok {
			select {
			case <-wait.Normal:
			case <-ctx.Done():
			}
			continue
		}
		all := make([]given, 0, len(b.Messages)+1)
		if b.Missing != nil {
			all = append(all, given{missing: b.Missing})
		}
		for _, m := range b.Messages {
			all = append(all, given{epoch: b.Epoch, message: m})
		}
		for _, g := range all {
			select {
			case out <- g:
			case <-ctx.Done():
				return
			}
		}
	}
}

// gap is how many notices the stream did not have any more.
type gap struct {
	Count  uint64         `json:"count"`
	Reason wire.GapReason `json:"reason"`
}

// event is the event for a message or a gap.
func (f *follower) event(g given) (*endpoint.Event, error) {
	if p := f.v.Renew(); p != nil {
		return nil, endpoint.ErrOver
	}
	feed, known := f.v.Snapshot.Feeds[f.feed]
	if !known || f.e.admit(f.v, feed) != nil {
		return nil, endpoint.ErrOver
	}
	if g.missing != nil {
		data, err := json.Marshal(gap{g.missing.Count, g.missing.Reason})
		return &endpoint.Event{Kind: "gap", Data: data}, err
	}
	n, err := wire.Decode[wire.Notice](g.message.Data)
	if err != nil || g.message.Header.Get(wire.HeaderRefilled) != "" { // unreadable, which the manifest's writer reports; or repeated
		return nil, nil
	}
	if f.v.Snapshot.Decide(feed, f.v.Reader, n.Instrument, n.Record.ObservedEnd(), f.v.Now) != access.Granted {
		return nil, nil
	}
	m := New(f.v.Base(), f.v.Snapshot.Instruments[n.Instrument], n, g.message.At)
	if m == nil {
		return nil, nil
	}
	id := wire.ResumeToken{Epoch: g.epoch, Sequence: g.message.Sequence, Index: math.MaxUint32}
	return &endpoint.Event{Kind: "notification", ID: id.String(), Data: m.encode()}, nil
}
