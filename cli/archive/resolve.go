// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// resolve returns the notice of an object by its key, the beginning of its
// digest, the path under which it is published, or an alias.
func resolve(ctx context.Context, b *backend.Backend, store objectstore.Store, name string, s *selection) (wire.Notice, error) {
	if digestPrefix.MatchString(name) || wire.IsOurs(name) {
		return find(ctx, store, b.Code, name, s)
	}
	if _, err := store.Head(ctx, name); err == nil {
		return find(ctx, store, b.Code, name, s) // it was imported where it lies
	} else if !errors.Is(err, objectstore.ErrNotFound) {
		return wire.Notice{}, err
	}
	if !b.KnowsJetStream() {
		return wire.Notice{}, fmt.Errorf("the bucket holds no object %q: substorm archive ls shows the keys; to look for a path or an alias, "+
			"which the registry tells, give --nats-servers", name)
	}
	js, err := b.JetStream(ctx)
	if err != nil {
		return wire.Notice{}, err
	}
	instruments, err := declared(ctx, js, b.Code, s)
	if err != nil {
		return wire.Notice{}, err
	}
	n, err := objectpath.Find(ctx, store, catalog.Names(js, b.Code), b.Code, name, instruments)
	if errors.Is(err, objectpath.ErrNoPath) {
		if n, err := ofGuest(ctx, store, b.Code, name, s, instruments); !errors.Is(err, errUnlisted) {
			return n, err
		}
		if shortDigest.MatchString(name) {
			return wire.Notice{}, fmt.Errorf("%w of site %s; if %s begins a digest, give at least eight digits of it", err, b.Code, name)
		}
		return wire.Notice{}, fmt.Errorf("%w of site %s: no key, no published path and no alias of %d instruments; "+
			"a new object has its paths once it is listed, within a minute: substorm archive ls -o wide shows them", err, b.Code, len(instruments))
	}
	return n, err
}

// ofGuest finds an object of another Site by its path, which follows from nothing that is known here: the manifests of the guests
// within the selection are read. Errors: errUnlisted, those of the manifests.
func ofGuest(ctx context.Context, store objectstore.Store, site, path string, s *selection, instruments []objectpath.Instrument) (wire.Notice, error) {
	within := *s
	within.instruments = nil
	for _, in := range instruments {
		if wire.IsGuest(in.Name) {
			within.instruments = append(within.instruments, in.Name)
		}
	}
	var found wire.Notice
	if len(within.instruments) == 0 {
		return found, errUnlisted
	}
	for n, err := range within.held(ctx, store, site) {
		if err != nil {
			return wire.Notice{}, err
		}
		if n.Published() == path && (found.ID == "" || n.State == wire.StateCurrent) {
			found = n
		}
	}
	if found.ID == "" {
		return found, errUnlisted
	}
	return found, nil
}

// declared are the instruments of the registry within the selection.
func declared(ctx context.Context, js jetstream.JetStream, site string, s *selection) ([]objectpath.Instrument, error) {
	var all []objectpath.Instrument
	err := eachInstrument(ctx, js, site, s, func(entry wire.InstrumentEntry) error {
		in, err := objectpath.OfEntry(entry)
		all = append(all, in)
		return err
	})
	return all, err
}

// eachInstrument calls f for the registry's entry of each instrument within the selection, those of other Sites among them.
func eachInstrument(ctx context.Context, js jetstream.JetStream, site string, s *selection, f func(wire.InstrumentEntry) error) error {
	err := backend.Entries(ctx, js, wire.RegistryBucket(site), wire.RegistryGuestKey("*", "*"), func(e backend.Entry) error {
		if name, ok := wire.ParseRegistryGuestKey(e.Key); !ok || !s.holdsInstrument(name) {
			return nil
		}
		guest, err := wire.Decode[wire.GuestEntry](e.Data)
		if err != nil {
			return fmt.Errorf("registry of site %s: %s: %w", site, e.Key, err)
		}
		return f(guest.Entry())
	})
	if err != nil {
		return err
	}
	return backend.Entries(ctx, js, wire.RegistryBucket(site), wire.RegistryInstrumentKey("*"), func(e backend.Entry) error {
		if name, ok := wire.ParseRegistryInstrumentKey(e.Key); !ok || !s.holdsInstrument(name) {
			return nil
		}
		entry, err := wire.Decode[wire.InstrumentEntry](e.Data)
		if err != nil {
			return fmt.Errorf("registry of site %s: %s: %w", site, e.Key, err)
		}
		return f(entry)
	})
}

func addRetracted(f *pflag.FlagSet, retracted *bool) {
	f.BoolVar(retracted, "retracted", false, "also give what was retracted")
}

// resolveReadable resolves a name to an object with the record of its day's manifest, because the object's metadata
// does not know later changes of its state. An object that is not listed yet keeps the state of its metadata. Expired
// and purged objects are refused, and retracted ones unless retracted is set. Other errors: those of the manifests.
func resolveReadable(ctx context.Context, b *backend.Backend, store objectstore.Store, name string, s *selection, retracted bool) (wire.Notice, error) {
	n, err := resolve(ctx, b, store, name, s)
	if err != nil {
		return wire.Notice{}, err
	}
	day := wire.DayOf(n.ReceivedAt)
	for r, err := range manifest.Records(ctx, store, n.Site, n.Instrument, day) {
		if err != nil {
			return wire.Notice{}, fmt.Errorf("the state of %s is unknown: instrument %s, %s: %w", n.ID, n.Instrument, day, err)
		}
		if r.ID == n.ID {
			n.Record = r
			break
		}
	}
	switch {
	case n.Expired():
		return wire.Notice{}, fmt.Errorf("%s has expired%s: its bytes are gone", n.ID, because(n.Record))
	case n.State == wire.StatePurged:
		return wire.Notice{}, fmt.Errorf("%s was purged%s: its bytes are gone", n.ID, because(n.Record))
	case n.State == wire.StateRetracted && !retracted:
		return wire.Notice{}, fmt.Errorf("%s was retracted%s: its bytes are kept, --retracted gives them", n.ID, because(n.Record))
	}
	return n, nil
}

// because says when and why an object was retracted, as far as that is known.
func because(r wire.Record) string {
	text := ""
	if r.RetractedAt != nil {
		text = " at " + wire.FormatTime(*r.RetractedAt)
	}
	if r.Reason != "" {
		text += fmt.Sprintf(" (%s)", r.Reason)
	}
	return text
}

// errUnlisted: no manifest lists the object.
var errUnlisted = errors.New("not listed")

// byID finds an object where only the manifests know its place: a member of a
// pack, or one that lies in a pack by now. Errors: errUnlisted, those of the
// manifests.
func byID(ctx context.Context, store objectstore.Store, site, id string, s *selection) (wire.Notice, error) {
	within := *s
	if day, ok := wire.DayOfID(id); ok {
		within.day, within.since, within.until = string(day), "", ""
	}
	if _, instrument, err := wire.InstrumentOfKey(id); err == nil {
		within.instruments = []string{instrument}
	}
	for n, err := range within.held(ctx, store, site) {
		if err != nil {
			return wire.Notice{}, err
		}
		if n.ID == id {
			return n, nil
		}
	}
	return wire.Notice{}, fmt.Errorf("%s: %w", id, errUnlisted)
}

// member finds a member of a pack by its ID.
func member(ctx context.Context, store objectstore.Store, site, id string, s *selection) (wire.Notice, error) {
	n, err := byID(ctx, store, site, id, s)
	if errors.Is(err, errUnlisted) {
		return wire.Notice{}, fmt.Errorf("the archive of site %s lists no object %q; a new object is listed within a minute: substorm archive ls shows the keys", site, id)
	}
	return n, err
}
