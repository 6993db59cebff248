// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// announcer tells the Site what a run knows: what the other Site says of its instruments, and which objects it has
// retracted.
type announcer struct {
	site, origin, partner string
	// run names this one in requests.
	run      string
	js       jetstream.JetStream
	entries  jetstream.KeyValue
	registry func() *registry.Snapshot
	logger   *slog.Logger
	// guests are the instruments of the other Site that stand here; nil until that is asked.
	guests map[string]bool
}

func newAnnouncer(ctx context.Context, cfg *Config) (*announcer, error) {
	kv, err := cfg.JetStream.KeyValue(ctx, wire.RegistryBucket(cfg.Site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.RegistryBucket(cfg.Site), err)
	}
	return &announcer{site: cfg.Site, origin: cfg.Entry.HTTPS.Origin, partner: cfg.Entry.Partner, run: rand.Text(),
		js: cfg.JetStream, entries: kv, registry: cfg.Registry,
		logger: cfg.Logger}, nil
}

// guest says what the other Site tells of an instrument, where that is new.
func (a *announcer) guest(ctx context.Context, said mirrorindex.DaysLine, at time.Time) error {
	e := wire.GuestEntry{Origin: a.origin, Instrument: said.Instrument, Partner: a.partner, SaidAt: at,
		Access: said.Access, Rights: said.Rights, About: said.About, Station: said.Station, MediaType: said.MediaType}
	if err := a.admit(e); err != nil {
		return err
	}
	if e.Access == nil {
		e.Access = restricted()
	}
	e, lacks := e.Plain()
	if len(lacks) > 0 {
		a.logger.Warn("ignoring fields of an instrument of the other side that could not be declared here", "instrument", said.Instrument, "fields", lacks)
	}
	return a.put(ctx, e)
}

// admit refuses what is no instrument, and more instruments than one Site may have here. Errors: push.Problem.
func (a *announcer) admit(e wire.GuestEntry) error {
	if err := e.CheckName(); err != nil {
		return &push.Problem{Reason: wire.MirrorReasonProtocol, Err: err}
	}
	if a.guests == nil {
		a.guests = map[string]bool{}
		for name := range a.registry().Instruments {
			if origin, instrument, is := wire.ParseGuestName(name); is && origin == a.origin {
				a.guests[instrument] = true
			}
		}
	}
	if !a.guests[e.Instrument] && len(a.guests) >= wire.MaxGuests {
		return &push.Problem{Reason: wire.MirrorReasonTooMany, Err: fmt.Errorf(
			"instrument %s of Site %s would be one more than the %d that stand here of that Site: name those to pull in spec.selection", e.Instrument, a.origin, wire.MaxGuests)}
	}
	a.guests[e.Instrument] = true
	return nil
}

// restricted is the access to everything that the other Site does not declare public.
func restricted() *wire.AccessEntry {
	return &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted}
}

// close closes a guest that the other Site does not let this mirror read any more: its readers there are unknown here.
func (a *announcer) close(ctx context.Context, instrument string, at time.Time) error {
	was, known := a.registry().Instruments[wire.GuestName(a.origin, instrument)]
	if !known {
		return nil
	}
	return a.put(ctx, wire.GuestEntry{Origin: a.origin, Instrument: instrument, Partner: a.partner, SaidAt: at,
		Access: restricted(), Rights: was.Rights, About: was.About, Station: was.Station, MediaType: was.MediaType})
}

// put writes what is said of a guest, where that is new.
func (a *announcer) put(ctx context.Context, e wire.GuestEntry) error {
	if was, known := a.registry().Instruments[e.Name()]; known && was.Generation == e.Entry().Generation {
		return nil
	}
	return stream.Save(ctx, a.entries, wire.RegistryGuestKey(a.origin, e.Instrument), e)
}

// By is the name under which a run asks for changes.
func By(partner string) string { return "mirror " + partner }

// sayable is a reason that another Site gives; empty if it is no valid reason here.
func sayable(reason string) string {
	if wire.CheckReason(reason) != nil {
		return ""
	}
	return reason
}

// change asks the archivist for one. The manifests say what the archivist decides.
func (a *announcer) change(ctx context.Context, guest string, c plan.Change) error {
	q := wire.ArchiveRequest{Site: a.site, Instrument: guest, Run: a.run, Action: c.Action, ID: c.Record.ID, ReceivedAt: c.Record.ReceivedAt,
		Reason: sayable(c.Reason), By: By(a.partner), RetractedAt: c.RetractedAt}
	m, err := stream.RequestMessage(q, a.partner)
	if err != nil {
		return err
	}
	if _, err := a.js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("ask the archivist for %s of %s: %w", c.Action, c.Record.ID, err)
	}
	return nil
}
