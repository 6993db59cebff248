// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/feed-server/mirror"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// newOrigin is another Site with the code of the origin, which has nothing yet.
func newOrigin(t *testing.T) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t)
	bundles := bundle.New(bundle.Config{Site: archivetest.Site, Catalog: l.Catalog, Store: l.Store, AccessCheck: l.AccessCheck, Logger: l.Logger})
	l.Open(mirror.New(mirror.Config{Site: archivetest.Site, Catalog: l.Catalog, AccessCheck: l.AccessCheck, JetStream: l.JetStream, Bundles: bundles.AtOnce}).Endpoints(), bundles.Endpoints())
	return l
}

// pulledAs is what the hub lists of an object of the Camera there.
func pulledAs(r wire.Record) *wire.Record { return pulledOf(archivetest.Camera, r) }

// pulledOf is what the hub lists of an object of an instrument there.
func pulledOf(instrument string, r wire.Record) *wire.Record {
	guest := wire.GuestName(archivetest.Site, instrument)
	from := wire.Origin{Site: archivetest.Site, ID: r.ID}
	r.ID, r.Origin = from.ObjectID(hubSite, guest, r.ReceivedAt, r.Digest), &from
	r.Key = r.ID
	return &r
}

// stored returns the bytes of an object in a store of the hub.
func stored(t *testing.T, store objectstore.Store, r wire.Record) string {
	t.Helper()
	body, _, err := store.Get(t.Context(), pulledAs(r).Key, objectstore.All)
	if err != nil {
		t.Errorf("%s: %v", r.Path, err)
		return ""
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// An origin that was installed again under its code gives the ID of an object that is here to other bytes: they come beside the first
// ones, which are superseded, and the run reports that the origin went back, until one is forced.
func TestReinstalled(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	at := func(when time.Time) func(*wire.Record) { return func(r *wire.Record) { r.ReceivedAt = when } }
	first := h.Put(archivetest.Camera, "r1/camera0.txt", "first", at(storm))
	same := h.Put(archivetest.Camera, "r1/camera1.txt", "same", at(storm))
	h.Wait(h.Put(archivetest.Camera, "gone.txt", "gone", at(storm.AddDate(0, 0, 3))))
	progress := &push.Progress{}
	pull := func(address string, change ...func(*site.Config)) error {
		progress = &push.Progress{}
		_, err := h.pull(address, append(change, func(c *site.Config) { c.Store, c.Progress = store, progress })...)
		return err
	}
	if err := pull(h.URL); err != nil {
		t.Fatal(err)
	}
	gone := wire.Record{ID: wire.NamedKey(archivetest.Site, archivetest.Camera, "gone.txt", 1), Path: "gone.txt", Size: 4, Digest: sha256.Sum256([]byte("gone")), ReceivedAt: storm.AddDate(0, 0, 3)}
	h.records = append(h.records, pulledAs(first), pulledAs(same), pulledAs(gone))
	if w := progress.WentBack(); w != nil {
		t.Errorf("the origin is as it was, and the run reports %+v", w)
	}

	origin := newOrigin(t)
	origin.Put(archivetest.Camera, "r1/camera1.txt", "same", at(storm))
	other := origin.Put(archivetest.Camera, "r1/camera0.txt", "other bytes", at(storm.Add(time.Hour)))
	origin.Wait(other)
	if err := pull(origin.URL, func(c *site.Config) { c.VerifyOnly = true }); !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "1 objects") {
		t.Errorf("a run that only verifies: %v", err)
	}
	if err := pull(origin.URL); err != nil {
		t.Errorf("%v; %s", err, h.log.String())
	}
	for r, body := range map[*wire.Record]string{&first: "first", &same: "same", &other: "other bytes"} {
		if got := stored(t, store, *r); got != body {
			t.Errorf("under the key of %s is %q, not %q", r.Path, got, body)
		}
	}
	want := wire.MirrorWentBack{Objects: 1, Days: 1, Instrument: archivetest.Camera, Path: "r1/camera0.txt"}
	reports := func(what string) {
		t.Helper()
		got := progress.WentBack()
		if got == nil || got.Since.IsZero() {
			t.Errorf("%s: the run reports %+v", what, got)
			return
		}
		is := *got
		if is.Since = want.Since; is != want {
			t.Errorf("%s: the run reports %+v", what, is)
		}
	}
	reports("the run that found it")
	h.records = append(h.records, pulledAs(other))
	for range 2 {
		if err := pull(origin.URL); err != nil {
			t.Error(err)
		}
		reports("a later run")
	}
	if got := h.requests(); len(got) != 2 || got[0] != wire.ActionSupersede {
		t.Errorf("the archivist is asked for %v", got)
	}
	h.records[0].Supersede()
	for range 2 {
		if err := pull(origin.URL, func(c *site.Config) { c.Force = true }); err != nil {
			t.Error(err)
		}
		if w := progress.WentBack(); w != nil {
			t.Errorf("a forced run reports %+v", w)
		}
	}
}

// Two current objects of one path, on two days of one bundle, are both mirrored.
func TestOnePathOnTwoDays(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	one := h.Put(archivetest.Camera, "same.txt", "one", func(r *wire.Record) { r.ReceivedAt = storm })
	two := h.Put(archivetest.Camera, "same.txt", "two", func(r *wire.Record) {
		r.ReceivedAt, r.Key = storm.AddDate(0, 0, 1), wire.NamedKey(archivetest.Site, archivetest.Camera, "same.txt", 2)
	})
	h.Wait(one)
	h.Wait(two)
	if _, err := h.pull(h.URL); err != nil {
		t.Errorf("%v; %s", err, h.log.String())
	}
	if a, b := stored(t, store, one), stored(t, store, two); a != "one" || b != "two" {
		t.Errorf("at the mirror there are %q and %q", a, b)
	}
}

// An object that is replaced between its list and its bundle is not owed: the run succeeds, and the next one looks at its day again.
func TestReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.Put(archivetest.Camera, "a.jpg", "a", func(r *wire.Record) { r.ReceivedAt = storm })
	h.Wait(r)
	u, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	proxy := &httputil.ReverseProxy{Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(u) }}
	proxy.ModifyResponse = func(answer *http.Response) error {
		if answer.Request.URL.Path != mirrorindex.ListsPath {
			return nil
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body = io.NopCloser(bytes.NewReader(body))
		once.Do(func() { h.becomes(r, wire.StateRetracted) })
		return err
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	if _, err := h.pull(server.URL); err != nil {
		t.Errorf("%v; %s", err, h.log.String())
	}
	if asked := h.pulled(); countOf(asked, mirrorindex.ListsPath) != 1 {
		t.Errorf("the next run asks %q", asked)
	}
	if asked := h.pulled(); len(asked) != 1 {
		t.Errorf("nothing is left: %q", asked)
	}
}
