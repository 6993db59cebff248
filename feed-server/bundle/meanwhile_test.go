// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// large is more than the buffers between a server and a client that does not read hold.
const large = 64 << 20

// declared changes the only instrument of a lab.
func declared(l *archivetest.Lab, change func(*wire.InstrumentEntry)) {
	s := *l.Snapshot()
	in := s.Instruments[archivetest.Camera]
	change(&in)
	s.Instruments = map[string]wire.InstrumentEntry{archivetest.Camera: in}
	l.Set(&s)
}

// Objects that a client may no longer read are no longer sent, not even the rest of one that
// has begun: a token was revoked, or the instrument is restricted to others now.
func TestOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	declared(l, func(in *wire.InstrumentEntry) { in.Access = archivetest.Restricted })
	l.Wait(l.Put(archivetest.Camera, "a.jpg", strings.Repeat("a", large), at(storm)))
	was := l.Snapshot()
	for what, end := range map[string]func(){
		"the token is revoked": func() {
			s := *l.Snapshot()
			s.Readers = map[string]wire.ReaderEntry{}
			l.Set(&s)
		},
		"the instrument is others'": func() {
			declared(l, func(in *wire.InstrumentEntry) { in.Access = &wire.AccessEntry{Archive: wire.AccessRestricted} })
		},
		"it is gone": func() {
			s := *l.Snapshot()
			s.Instruments = nil
			l.Set(&s)
		},
		"nothing": func() { l.Set(&registry.Snapshot{Revision: 2, Instruments: was.Instruments, Readers: was.Readers}) },
	} {
		l.Set(was)
		resp := l.Request(http.MethodGet, "/bundle/allsky-1.tar", "Authorization", "Bearer "+archivetest.Token)
		end()
		got, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if whole := err == nil && got > large; whole != (what == "nothing") {
			t.Errorf("%s: %d %d bytes, %v", what, resp.StatusCode, got, err)
		}
	}
}

// An object that is retracted, or comes under embargo, while a bundle is sent is left out of
// it, and is sent when it may be read again.
func TestRetractedMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	day := time.Now().UTC().Truncate(24 * time.Hour)
	ripe := day.AddDate(0, 0, -300)
	l.Put(archivetest.Camera, "a.jpg", strings.Repeat("a", large), at(day), observed(ripe))
	l.Put(archivetest.Camera, "b.jpg", "b", at(day.Add(time.Second)), observed(ripe))
	c := l.Put(archivetest.Camera, "c.jpg", "c", at(day.Add(2*time.Second)), observed(ripe))
	l.Wait(l.Put(archivetest.Camera, "d.jpg", "d", at(day.Add(3*time.Second)), observed(time.Now())))
	list := "bundle.d/allsky-1/" + day.Format(time.DateOnly) + ".jsonl"
	resp := l.Request(http.MethodGet, "/bundle/allsky-1.tar")
	defer resp.Body.Close()
	c.State, c.Reason = wire.StateRetracted, "a lamp"
	retracted := time.Now()
	c.RetractedAt = &retracted
	l.Announce(archivetest.Camera, c)
	l.Until("it is gone", func() bool { return l.Get("/archive/allsky-1/c.jpg").Status == http.StatusGone })
	declared(l, func(in *wire.InstrumentEntry) {
		in.Access = &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: 1000 * time.Hour.Milliseconds()}
	})
	first := unpack(t, resp.Body)
	first.want(t, "what may be had", "allsky-1/a.jpg", "allsky-1/b.jpg", list)
	if text := first.files[list]; !strings.Contains(text, `"path":"c.jpg","state":"Retracted","reason":"a lamp"`) || strings.Contains(text, "d.jpg") || first.end.Objects != 2 {
		t.Errorf("%+v: %s", first.end, text)
	}
	declared(l, func(in *wire.InstrumentEntry) { in.Access = archivetest.Public })
	c.State, c.Reason, c.RetractedAt = wire.StateCurrent, "it was the moon", nil
	restored := time.Now()
	c.RestoredAt = &restored
	l.Announce(archivetest.Camera, c)
	l.Until("it is there again", func() bool { return l.Get("/archive/allsky-1/c.jpg").Status == http.StatusOK })
	second := get(l, "/bundle/allsky-1.tar?"+since(first))
	second.want(t, "what was left out", "allsky-1/c.jpg", "allsky-1/d.jpg", list)
	get(l, "/bundle/allsky-1.tar?"+since(second)).want(t, "nothing more")
}

// A client that takes nothing leaves turns to another.
func TestTurns(t *testing.T) {
	t.Parallel()
	l := archivetest.New(t)
	const turns = 4
	l.Open(bundle.New(bundle.Config{Site: archivetest.Site, Catalog: l.Catalog, Store: l.Store, AccessCheck: l.AccessCheck, Logger: l.Logger, Memory: turns * 12 << 20}).Endpoints())
	l.Wait(l.Put(archivetest.Camera, "a.jpg", strings.Repeat("a", large), at(storm)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan error, turns)
	for range turns {
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/bundle/allsky-1.tar", nil)
			if err == nil {
				var resp *http.Response
				if resp, err = http.DefaultClient.Do(r); err == nil {
					context.AfterFunc(ctx, func() { resp.Body.Close() })
				}
			}
			begun <- err
		}()
	}
	for range turns / 2 {
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	l.Until("all have asked", func() bool {
		asked += len(l.Asked())
		return asked >= turns
	})
	if a := l.Get("/bundle/allsky-1.tar?to=2015-01-01", "Authorization", "Bearer "+archivetest.Token); a.Status != http.StatusOK || a.Err != nil {
		t.Errorf("behind slow ones: %d %s %v", a.Status, a.Body, a.Err)
	}
}
