// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// checkDamage decides about an object that was reported as damaged: it is read again, at the place that
// its manifest names now.
func (s *Scrub) checkDamage(ctx context.Context, d wire.Damage) error {
	if isManifest(d) {
		return s.lookAtManifest(ctx, d)
	}
	r, listed, err := s.listed(ctx, d)
	if errors.Is(err, wire.ErrMalformed) {
		return nil // its place is unknown; the report stays as it is
	}
	if err != nil {
		return err
	}
	if !listed || !bucket.Holds(r) {
		return s.findings.clear(ctx, d, "the archive does not hold its bytes any more")
	}
	cause, err := s.check(ctx, r)
	if err != nil {
		return err
	}
	if cause == "" {
		return s.findings.clear(ctx, d, "its bytes are whole")
	}
	is := wire.DamageOf(d.Instrument, r, cause, d.FoundBy, d.FoundAt)
	is.Confirmed = true
	return s.findings.confirm(ctx, is)
}

// isManifest says whether a damage is damage of a file of a manifest.
func isManifest(d wire.Damage) bool {
	_, err := wire.ParseManifestKey(d.ID)
	return err == nil
}

// lookAtManifest decides about a file of a manifest: it counts as damaged while it is in
// effect and cannot be read, and as missing while its day has no file.
func (s *Scrub) lookAtManifest(ctx context.Context, d wire.Damage) error {
	if d.Cause == wire.DamageMissing {
		return s.lookForManifest(ctx, d)
	}
	bad, err := s.unreadable(ctx, d.Instrument, d.Day)
	if err != nil {
		return err
	}
	if !slices.Contains(bad, d.ID) {
		return s.findings.clear(ctx, d, "the manifest of its day can be read without it, or it can be read")
	}
	d.Confirmed = true
	return s.findings.confirm(ctx, d)
}

func (s *Scrub) lookForManifest(ctx context.Context, d wire.Damage) error {
	files, err := manifest.List(ctx, s.cfg.Store, s.cfg.Site, d.Instrument, d.Day)
	if err != nil {
		return err
	}
	if len(files.InEffect) > 0 {
		return s.findings.clear(ctx, d, "its day has a manifest again")
	}
	d.Confirmed = true
	return s.findings.confirm(ctx, d)
}

// unreadable returns those files of a day's manifest that are in effect and cannot be read.
func (s *Scrub) unreadable(ctx context.Context, instrument string, day wire.Day) (bad []string, err error) {
	files, err := manifest.List(ctx, s.cfg.Store, s.cfg.Site, instrument, day)
	if err != nil {
		return nil, err
	}
	for _, err := range files.Readable(ctx, s.cfg.Store, func(key string, _ error) { bad = append(bad, key) }) {
		if err != nil {
			return nil, err
		}
	}
	return bad, nil
}

// listed returns what the manifest says now of an object.
func (s *Scrub) listed(ctx context.Context, d wire.Damage) (wire.Record, bool, error) {
	for r, err := range manifest.Records(ctx, s.cfg.Store, s.cfg.Site, d.Instrument, d.Day) {
		if err != nil {
			return wire.Record{}, false, err
		}
		if r.ID == d.ID {
			return r, true, nil
		}
	}
	return wire.Record{}, false, nil
}

// followClaims looks at what others find damaged, and at what they repaired.
func (s *Scrub) followClaims(ctx context.Context) error {
	watch, err := s.findings.status.Watch(ctx, wire.DamageKeys, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-watch.Updates():
			if !open {
				return errors.New("the watch of damaged objects ended")
			}
			if e == nil {
				continue
			}
			if err := s.claim(ctx, e); err != nil {
				return err
			}
		}
	}
}

func (s *Scrub) claim(ctx context.Context, e jetstream.KeyValueEntry) error {
	d, err := wire.Decode[wire.Damage](e.Value())
	if errors.Is(err, wire.ErrNewerFormat) {
		return err
	}
	if err != nil || d.Confirmed && d.RepairedAt == nil || wire.DamageKey(d.Instrument, d.ID) != e.Key() {
		return nil
	}
	return s.checkDamage(ctx, d)
}
