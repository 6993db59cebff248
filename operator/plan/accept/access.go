// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// AccessEntry returns who may read an Instrument's data; nil if the access is the default of entries without one.
func AccessEntry(access *v1alpha1.Access) *wire.AccessEntry {
	entry := &wire.AccessEntry{
		Live:    string(cmp.Or(access.Live, v1alpha1.AccessAuthenticated)),
		Archive: string(cmp.Or(access.Archive, v1alpha1.AccessAuthenticated)),
		Readers: slices.Sorted(slices.Values(access.Readers)),
	}
	if access.Embargo != nil {
		entry.EmbargoMillis = access.Embargo.Milliseconds()
	}
	if entry.Live == wire.AccessAuthenticated && entry.Archive == wire.AccessAuthenticated && entry.EmbargoMillis == 0 {
		return nil
	}
	return entry
}

// RightsEntry returns the rights of an Instrument as the registry has them; nil if it declares none.
func RightsEntry(rights *v1alpha1.Rights) *wire.RightsEntry {
	if rights == nil {
		return nil
	}
	return &wire.RightsEntry{License: rights.License, DOI: rights.DOI, Citation: rights.Citation, Credit: rights.Credit}
}

// SiteAccess is who may have the live data of a Site's instruments: found once, and asked
// for each consumer.
type SiteAccess struct {
	// entries of the Instruments that declare something.
	entries map[string]*wire.AccessEntry
	// closed are those of them that are closed to some consumer that selects them.
	closed map[string]bool
	// gone are instruments that were closed when they left the registry, or will leave it so: messages of theirs may be in the streams, or
	// still come from a spool.
	gone map[string]*wire.AccessEntry
	// shut are the names of both.
	shut map[string]bool

	// named are the readers that closed entries name, and unnamed is what all others may have of a list of instruments, which several
	// consumers select.
	named   map[string]bool
	unnamed map[selectionOf][]string
}

// selectionOf distinguishes lists of instruments.
type selectionOf struct {
	first *string
	count int
}

// unknownAccess admits no reader.
var unknownAccess = wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted}

// AccessOf determines who may read what. Listed are the Instruments that are, or will be, in the registry; stands is the registry's current
// content. Their declarations take precedence over what was there before.
func AccessOf(instruments []v1alpha1.Instrument, listed map[string]bool, stands observed.RegistryState) *SiteAccess {
	a := &SiteAccess{entries: map[string]*wire.AccessEntry{}, closed: map[string]bool{}, gone: map[string]*wire.AccessEntry{}, shut: map[string]bool{},
		named: map[string]bool{}, unnamed: map[selectionOf][]string{}}
	for i := range instruments {
		inst := &instruments[i]
		entry := AccessEntry(&inst.Spec.Access)
		if was, closed := LeavesClosed(stands.Entries, inst.Name); closed && !entry.Closed() && finding.Unreadable(inst) != "" {
			entry = was // its entry stays, and so does the access in it
		}
		if entry == nil {
			continue
		}
		a.entries[inst.Name] = entry
		if entry.Closed() {
			a.closed[inst.Name] = true
		}
	}
	for name := range stands.Entries {
		if entry, leaves := LeavesClosed(stands.Entries, name); leaves && !listed[name] {
			a.gone[name] = entry
		}
	}
	for name := range stands.Closed {
		if entry := stands.Closed[name]; !listed[name] {
			a.gone[name] = &entry.Access
		}
	}
	for name := range a.closed {
		a.shut[name] = true
		for _, reader := range a.entries[name].Readers {
			a.named[reader] = true
		}
	}
	for name := range a.gone {
		a.shut[name] = true
	}
	return a
}

// LeavesClosed returns whether an entry of the registry is closed to some readers, and its access.
func LeavesClosed(entries map[string]wire.InstrumentEntry, name string) (*wire.AccessEntry, bool) {
	entry := entries[name]
	if entry.Instrument == "" { // it cannot be read
		return &unknownAccess, true
	}
	return entry.Access, entry.Access.Closed()
}

// Readable are the instruments whose live data a consumer may have by its own name.
// Feed is nil where it does not exist: then it narrows nothing.
func (a *SiteAccess) Readable(feed *v1alpha1.Feed, consumer *v1alpha1.FeedConsumer, instruments []string, now time.Time) []string {
	if narrows(feed) {
		return a.narrowed(feed, consumer, instruments, now)
	}
	if len(a.closed) == 0 || len(instruments) == 0 {
		return instruments
	}
	reader := access.Consumer(consumer.Name, a.shut)
	key := selectionOf{&instruments[0], len(instruments)}
	if known, found := a.unnamed[key]; found && !a.named[reader.String()] {
		return known
	}
	all := make([]string, 0, len(instruments))
	for _, name := range instruments {
		if !a.closed[name] || a.lets(reader, feed, name, a.entries[name], now) {
			all = append(all, name)
		}
	}
	if !a.named[reader.String()] {
		a.unnamed[key] = all
	}
	return all
}

// narrowed is Readable for a Feed that admits only named readers.
func (a *SiteAccess) narrowed(feed *v1alpha1.Feed, consumer *v1alpha1.FeedConsumer, instruments []string, now time.Time) (all []string) {
	selects := make(map[string]bool, len(instruments))
	for _, name := range instruments {
		selects[name] = true
	}
	reader := access.Consumer(consumer.Name, selects)
	for _, name := range instruments {
		if a.lets(reader, feed, name, a.entries[name], now) {
			all = append(all, name)
		}
	}
	return all
}

// lets says whether a reader may have what an instrument sends now.
func (a *SiteAccess) lets(reader access.Reader, feed *v1alpha1.Feed, instrument string, entry *wire.AccessEntry, now time.Time) bool {
	is := entry.InForce()
	if narrows(feed) {
		is.Live = access.Narrower(is.Live, string(feed.Spec.Access.Live))
	}
	// Live data was observed just now.
	return access.Decide(access.Live, reader, instrument, &is, now, now) == access.Granted
}

// Everything says whether a consumer may have all that the Site's instruments send, have
// sent, and will send unless one of them is closed first: only then may it select them by
// wildcard.
func (a *SiteAccess) Everything(feed *v1alpha1.Feed, consumer *v1alpha1.FeedConsumer, now time.Time) bool {
	if narrows(feed) {
		return false
	}
	reader := access.Consumer(consumer.Name, a.shut)
	for name := range a.closed {
		if !a.lets(reader, feed, name, a.entries[name], now) {
			return false
		}
	}
	for name, entry := range a.gone {
		if !a.lets(reader, feed, name, entry, now) {
			return false
		}
	}
	return true
}

// narrows returns whether a Feed admits fewer consumers than its Instruments may.
func narrows(feed *v1alpha1.Feed) bool {
	return feed != nil && feed.Spec.Access != nil &&
		access.Narrower(wire.AccessAuthenticated, string(feed.Spec.Access.Live)) != wire.AccessAuthenticated
}
