// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/mirror"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// hub is a reader that pulls.
func hub(hold time.Duration, instruments ...string) wire.ReaderEntry {
	return wire.ReaderEntry{Reader: "hub", Pulls: &wire.PullsEntry{HoldMillis: hold.Milliseconds(), Instruments: instruments}}
}

// pulls writes into the ledger that a reader has confirmed some objects of the camera's day.
func (l *lab) pulls(has wire.Totals) {
	l.Helper()
	if err := stream.Save(l.Context(), l.KV(wire.LedgerBucket(site)), wire.LedgerKey(camera, day, wire.StepPulled, "hub"), wire.Mirrored(has)); err != nil {
		l.Fatal(err)
	}
}

// currentCopies are what is current of the camera's day, but for the first few.
func (l *lab) currentCopies(but int) (all wire.Totals) {
	l.Helper()
	for rec, err := range manifest.Records(l.Context(), l.Store, site, camera, day) {
		if err != nil {
			l.Fatal(err)
		}
		if rec.State != wire.StateCurrent {
			continue
		}
		if but--; but < 0 {
			all.AddCopy(&rec)
		}
	}
	return all
}

// A day waits for a reader that pulls and has not confirmed all of it, no longer than the reader's holdRetention, and not for what the
// reader does not pull or may not read.
func TestExpireWaitsForReaderThatPulls(t *testing.T) {
	restricted := &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted}
	for name, c := range map[string]struct {
		reader wire.ReaderEntry
		access *wire.AccessEntry
		// has is what it confirmed: nil, nothing at all.
		has   func(*lab) wire.Totals
		waits bool
	}{
		"it never registered":           {hub(24 * time.Hour), nil, nil, true},
		"it has lost what it confirmed": {hub(24 * time.Hour), nil, func(*lab) wire.Totals { return wire.Totals{} }, true},
		"it lacks one":                  {hub(24 * time.Hour), nil, func(l *lab) wire.Totals { return l.currentCopies(1) }, true},
		"it has as many others": {hub(24 * time.Hour), nil, func(l *lab) wire.Totals {
			has := l.currentCopies(0)
			has.Digest = wire.Digest{1}
			return has
		}, true},
		"it has all":                  {hub(24 * time.Hour), nil, func(l *lab) wire.Totals { return l.currentCopies(0) }, false},
		"it pulls it by name":         {hub(24*time.Hour, camera), nil, nil, true},
		"it pulls another instrument": {hub(24*time.Hour, sonde), nil, nil, false},
		"it may not read it":          {hub(24 * time.Hour), restricted, nil, false},
		"it is not to be waited for":  {hub(0), nil, nil, false},
		"another reader":              {wire.ReaderEntry{Reader: "hub"}, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.fill()
			l.keep.HoldMillis, l.access = (48 * time.Hour).Milliseconds(), c.access
			if l.pullers = []wire.ReaderEntry{}; c.reader.Pulls != nil {
				l.pullers = append(l.pullers, c.reader)
			}
			if c.has != nil {
				l.pulls(c.has(l))
			}
			r := l.collector()
			l.pass(r, now)
			l.pass(r, now.Add(23*time.Hour))
			if is := l.states(camera); (is[wire.StatePurged] == 0) != c.waits {
				t.Errorf("within its holdRetention: %v; told: %v", is, r.told)
			}
			for _, told := range r.told {
				if c.waits && !strings.Contains(told, "reader_hub have not got it") {
					t.Errorf("told: %s", told)
				}
			}
			l.pass(r, now.Add(48*time.Hour))
			l.want("after it", l.states(camera)[wire.StatePurged], 6)
		})
	}
}

// A reader that pulls finds purges in the lists: none waits until it confirmed that.
func TestPurgeWaitsForNoReader(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.pullers = []wire.ReaderEntry{hub(24 * time.Hour)}
	l.pulls(l.currentCopies(0))
	r := l.collector()
	l.purge(r)
	l.passes(r)
	l.want("removals", l.waiting(r), 0)
}

// A copy that a reader pulled counts where the disk budget is nearly used up, if the reader has compared what it has.
func TestExpirePulledForSpace(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep = &wire.RetentionEntry{WhenMirrored: true}
	l.pullers = []wire.ReaderEntry{hub(24 * time.Hour)}
	l.pulls(l.currentCopies(0))
	d := newDisk(t)
	d.fill(95)
	early := noon.AddDate(0, 0, 1)
	looks := func(compared time.Time) {
		t.Helper()
		status := wire.PullerStatus{ReportedAt: early, VerifiedTo: early, ComparedAt: compared}
		if err := stream.Save(t.Context(), l.KV(wire.StatusBucket(site)), wire.PullerStatusKey("hub"), status); err != nil {
			t.Fatal(err)
		}
		r := l.collector()
		r.cfg.Budget = d.Budget
		if err := r.findForSpace(t.Context(), early); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := r.pass(t.Context(), early.Add(time.Duration(i)*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, compared := range map[string]time.Time{"it never compared": {}, "it compared long ago": early.Add(-comparedWithin - time.Hour),
		"its clock was ahead": early.AddDate(1, 0, 0)} {
		looks(compared)
		l.want(what, l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	}
	looks(early)
	l.gone()
}

// origin serves the archive of a lab to mirrors, and waits for the reader hub.
func (l *lab) origin() *url.URL {
	l.Helper()
	const token = "0123456789abcdef0123456789abcdef"
	reader := hub(1000 * time.Hour)
	reader.Tokens = []wire.TokenHash{wire.HashToken([]byte("salt"), token)}
	l.pullers = []wire.ReaderEntry{reader}
	instruments := map[string]wire.InstrumentEntry{camera: {Instrument: camera}, sonde: {Instrument: sonde}}
	snapshot := &registry.Snapshot{Revision: 1, Instruments: instruments, Readers: map[string]wire.ReaderEntry{"hub": reader}}
	registerer := prometheus.NewRegistry()
	c := catalog.New(catalog.Config{Site: site, JetStream: l.JetStream, Store: l.Store, Log: slog.New(slog.DiscardHandler), Registerer: registerer})
	ctx, stop := context.WithCancel(l.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx) // ctx's
	}()
	l.Cleanup(func() { stop(); <-ended })
	check := endpoint.NewAccessCheck(endpoint.AccessCheckConfig{Registry: func() *registry.Snapshot { return snapshot }, Logger: slog.New(slog.DiscardHandler), Metrics: registerer})
	bundles := bundle.New(bundle.Config{Site: site, Catalog: c, Store: l.Store, AccessCheck: check, Logger: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	for _, endpoints := range []map[string]http.HandlerFunc{
		mirror.New(mirror.Config{Site: site, Catalog: c, AccessCheck: check, JetStream: l.JetStream, Bundles: bundles.AtOnce}).Endpoints(), bundles.Endpoints(),
	} {
		for pattern, serve := range endpoints {
			mux.HandleFunc(pattern, serve)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		mux.ServeHTTP(w, r)
	}))
	l.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		l.Fatal(err)
	}
	return at
}

// A station keeps what is due until its hub has pulled it, and then lets it expire.
func TestExpireOncePulled(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.keep.HoldMillis = (1000 * time.Hour).Milliseconds()
	at := l.origin()
	r := l.collector()
	l.pass(r, now)
	l.want("before the hub has it", l.states(camera), map[wire.State]int{wire.StateCurrent: 7})
	dir := l.TempDir()
	f, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 2})
	defer client.Close()
	err = pull.Run(t.Context(), pull.Config{Source: client, Folder: f, Progress: &pull.Progress{}, Logger: slog.New(slog.DiscardHandler)})
	if closing := f.Close(); err != nil || closing != nil {
		t.Fatal(err, closing)
	}
	for i := range 3 {
		l.pass(r, now.Add(time.Duration(i+1)*time.Hour))
	}
	l.gone()
	var files []string
	if err := filepath.WalkDir(filepath.Join(dir, camera), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	}); err != nil || len(slices.Compact(files)) != 7 {
		t.Errorf("the hub has %q, %v", files, err)
	}
}
