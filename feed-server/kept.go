// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/atom"
	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/feed-server/console"
	"github.com/substorm/substorm/feed-server/damage"
	"github.com/substorm/substorm/feed-server/downloads"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/hapi"
	"github.com/substorm/substorm/feed-server/latest"
	"github.com/substorm/substorm/feed-server/mirror"
	"github.com/substorm/substorm/feed-server/rsync"
	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/descriptions"
	"github.com/substorm/substorm/internal/objectstore"
)

// The parts of Config.ArchiveSize. A HAPI request takes at most its part of HAPI's memory, and the
// samples that are held for later requests take as much.
const (
	hotShare     = 2.5 / 10
	mirrorShare  = 0.5 / 10
	catalogShare = 2. / 10
	hapiShare    = 3. / 10
	bundleShare  = 2. / 10
	hapiRequests = 4
	// rsyncShare is what rsync has of it, where it is served, before the others share the rest.
	rsyncShare = 1. / 4
)

// kept is what the archive is served from; the zero value if there is no archive.
type kept struct {
	catalog      *catalog.Catalog
	store        objectstore.Store
	descriptions *descriptions.Descriptions
	downloads    *downloads.Counter
	damage       *damage.Teller
	console      *console.Console
	rsync        *rsync.Server
}

// openArchive makes the parts that serve the archive, and returns their endpoints.
func (s *server) openArchive() (map[string]http.HandlerFunc, error) {
	cfg := &s.cfg
	if cfg.Objects.Endpoint == "" {
		return nil, nil
	}
	var err error
	if s.kept.store, err = objectstore.Open(cfg.Objects); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	s.kept.catalog = catalog.New(catalog.Config{
		Site: cfg.Site, JetStream: s.js, Store: s.kept.store, Memory: share(cfg.ArchiveSize, catalogShare),
		Naming:       func(instrument string) string { e, _ := s.instrument(instrument); return e.Naming },
		RepeatWindow: func(instrument string) time.Duration { e, _ := s.instrument(instrument); return e.RepeatWindow() },
		Log:          s.log, Registerer: s.metrics,
	})
	s.kept.descriptions = descriptions.New(descriptions.Config{Site: cfg.Site, JetStream: s.js, Log: s.log})
	s.kept.downloads = downloads.New(downloads.Config{
		Site: cfg.Site, Pod: cfg.Pod, Incarnation: s.incarnation, JetStream: s.js, Logger: s.log,
		Known: func(instrument string) bool { _, known := s.instrument(instrument); return known },
	})
	s.kept.damage = damage.New(damage.Config{Site: cfg.Site, Pod: cfg.Pod, JetStream: s.js, Logger: s.log, Metrics: s.metrics})
	check := endpoint.NewAccessCheck(endpoint.AccessCheckConfig{
		Registry: s.registry.Snapshot, Admission: s.admission, BaseURL: cfg.BaseURL,
		Draining: s.leaving, Count: s.kept.downloads.Count, Damaged: s.kept.damage.Tell, Logger: s.log, Metrics: s.metrics,
	})
	objects := archive.New(archive.Config{
		Site: cfg.Site, Catalog: archive.Manifests{Catalog: s.kept.catalog, Names: catalog.Names(s.js, cfg.Site)}, Store: s.kept.store,
		Described:   s.kept.descriptions.At,
		AccessCheck: check, Memory: share(cfg.ArchiveSize, hotShare), Logger: s.log, Metrics: s.metrics,
	})
	s.kept.console = console.New(console.Config{Site: cfg.Site, JetStream: s.js, Catalog: s.kept.catalog, AccessCheck: check, Logger: s.log})
	samples, err := s.openSamples(check)
	if err != nil {
		return nil, err
	}
	endpoints := objects.Endpoints()
	maps.Copy(endpoints, latest.New(latest.Config{Catalog: s.kept.catalog, AccessCheck: check, Archive: objects}).Endpoints())
	bundles := bundle.New(bundle.Config{Site: cfg.Site, Catalog: s.kept.catalog, Store: s.kept.store, AccessCheck: check,
		Memory: share(cfg.ArchiveSize, bundleShare), Logger: s.log})
	maps.Copy(endpoints, bundles.Endpoints())
	maps.Copy(endpoints, mirror.New(mirror.Config{Site: cfg.Site, Catalog: s.kept.catalog, AccessCheck: check, JetStream: s.js, Bundles: bundles.AtOnce,
		Memory: share(cfg.ArchiveSize, mirrorShare), Logger: s.log}).Endpoints())
	maps.Copy(endpoints, atom.New(atom.Config{Site: cfg.Site, Catalog: s.kept.catalog, AccessCheck: check}).Endpoints())
	maps.Copy(endpoints, wis2.NewEvents(wis2.Config{Site: cfg.Site, Registry: s.registry.Snapshot, Hub: s.hubs.of, Slots: s.slots, AccessCheck: check, Logger: s.log}).Endpoints())
	maps.Copy(endpoints, samples.Endpoints())
	if err := s.openRsync(); err != nil {
		return nil, err
	}
	maps.Copy(endpoints, s.kept.console.Endpoints())
	return endpoints, nil
}

// openRsync makes the service for rsync, if there is to be one.
func (s *server) openRsync() (err error) {
	cfg := &s.cfg
	if cfg.RsyncAddress == "" {
		return nil
	}
	s.kept.rsync, err = rsync.New(rsync.Config{
		Site: cfg.Site, Listen: cfg.RsyncAddress, Window: cfg.RsyncWindow, BaseURL: cfg.BaseURL, Catalog: s.kept.catalog, Store: s.kept.store,
		Registry: s.registry.Snapshot, Admission: s.admission, Memory: cfg.rsyncSize, MaxTransfers: cfg.RsyncMaxTransfers,
		Count: s.kept.downloads.Count, Damaged: s.kept.damage.Tell, Logger: s.log, Metrics: s.metrics,
	})
	return err
}

// openSamples makes HAPI.
func (s *server) openSamples(check *endpoint.AccessCheck) (*hapi.Handler, error) {
	part := int(share(s.cfg.ArchiveSize, hapiShare) / (hapiRequests + 1))
	return hapi.New(hapi.Config{
		Site: s.cfg.Site, AccessCheck: check, Generations: s.kept.descriptions.All,
		Archive: hapi.Manifests{Catalog: s.kept.catalog, Store: s.kept.store},
		Memory:  part, Requests: hapiRequests, Recent: part,
		Log: s.log, Metrics: s.metrics,
	})
}

func share(of int64, part float64) int64 { return int64(part * float64(of)) }
