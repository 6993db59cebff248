// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Change is what must be written to a Site's registry, in this order: access before its readers, then deletions, then Complete. It is empty
// if the registry is as planned. If it Closes something, no durable may deliver that any more when the change is begun.
type Change struct {
	PutClosed       []wire.ClosedEntry     `json:"putClosed,omitempty"`
	Put             []wire.InstrumentEntry `json:"put,omitempty"`
	PutReaders      []wire.ReaderEntry     `json:"putReaders,omitempty"`
	PutFeeds        []wire.FeedEntry       `json:"putFeeds,omitempty"`
	PutConsumers    []wire.ConsumerEntry   `json:"putConsumers,omitempty"`
	PutMirrors      []wire.MirrorEntry     `json:"putMirrors,omitempty"`
	DeleteMirrors   []string               `json:"deleteMirrors,omitempty"`
	DeleteConsumers []string               `json:"deleteConsumers,omitempty"`
	DeleteFeeds     []string               `json:"deleteFeeds,omitempty"`
	DeleteReaders   []string               `json:"deleteReaders,omitempty"`
	Delete          []string               `json:"delete,omitempty"`
	DeleteClosed    []string               `json:"deleteClosed,omitempty"`
	Complete        *wire.RegistryComplete `json:"complete,omitempty"`
}

// Input is the input to a Site's registry.
type Input struct {
	Site        *v1alpha1.Site
	Instruments []v1alpha1.Instrument
	Verdicts    map[string]accept.Verdict
	Feeds       []v1alpha1.Feed
	FeedsAre    map[string]accept.FeedVerdict
	Consumers   []v1alpha1.FeedConsumer
	// ConsumersAre has no verdict on consumers of other Sites' Feeds.
	ConsumersAre map[string]accept.ConsumerVerdict
	Mirrors      []v1alpha1.MirrorPartner
	MirrorsAre   map[string]accept.MirrorVerdict
	// Secrets are the existing ones that hold tokens; one that could not be read must not be left out, since a missing one revokes.
	Secrets workload.Secrets
	// Held are Instruments and Feeds whose durables still deliver data that is being closed: gateways begin to receive from no such
	// Instrument, and its entry changes nothing but its access.
	Held Closing
}

// Plan compares the planned content of a Site's registry with the current one: stands, closed by complete (nil if the bucket has no
// marker). Revision is the newest that was ever seen; a change gets the next one.
func Plan(in Input, stands observed.RegistryState, complete *wire.RegistryComplete, revision int64) Change {
	if complete != nil {
		revision = max(revision, complete.Revision)
	}
	next := revision + 1
	var c Change
	is := wire.RegistryComplete{Revision: next, LegalHold: in.siteUnderHold(complete)}
	c.Put, c.Delete, is.Count = compare(in.instrumentEntries(stands, next), stands.Entries, sameEntry)
	c.PutReaders, c.DeleteReaders, is.Readers = compare(in.ReaderEntries(stands, next), stands.Readers, func(a, b wire.ReaderEntry) bool {
		b.Revision = a.Revision
		return reflect.DeepEqual(a, b)
	})
	c.PutFeeds, c.DeleteFeeds, is.Feeds = compare(in.feedEntries(stands, next), stands.Feeds, func(a, b wire.FeedEntry) bool {
		b.Revision = a.Revision
		return reflect.DeepEqual(a, b)
	})
	c.PutConsumers, c.DeleteConsumers, is.Consumers = compare(in.consumerEntries(stands, next), stands.Consumers, func(a, b wire.ConsumerEntry) bool {
		b.Revision = a.Revision
		return reflect.DeepEqual(a, b)
	})
	c.PutMirrors, c.DeleteMirrors, is.Mirrors = compare(in.mirrorEntries(stands, next), stands.Mirrors, sameMirror)
	c.remember(stands, next)
	if c.any() || complete == nil || complete.Count != is.Count || complete.Readers != is.Readers ||
		complete.Feeds != is.Feeds || complete.Consumers != is.Consumers || complete.Mirrors != is.Mirrors || complete.LegalHold != is.LegalHold {
		c.Complete = &is
	}
	return c
}

// PlanPart is Plan for some Instruments alone: those in the input, and the named ones, some of which may be gone. Nothing else has changed
// since the registry was complete.
func PlanPart(in Input, names []string, stands observed.RegistryState, complete wire.RegistryComplete, revision int64) Change {
	next := max(revision, complete.Revision) + 1
	part := observed.RegistryState{Entries: map[string]wire.InstrumentEntry{}}
	for _, name := range names {
		if entry, exists := stands.Entries[name]; exists {
			part.Entries[name] = entry
		}
	}
	var c Change
	var count int
	c.Put, c.Delete, count = compare(in.instrumentEntries(part, next), part.Entries, sameEntry)
	c.remember(observed.RegistryState{Entries: part.Entries, Closed: stands.Closed}, next)
	if c.any() {
		complete.Revision = next
		complete.Count += count - len(part.Entries)
		c.Complete = &complete
	}
	return c
}

// any says whether an entry is written or deleted.
func (c Change) any() bool {
	return len(c.Put)+len(c.PutReaders)+len(c.PutFeeds)+len(c.PutConsumers)+len(c.PutMirrors)+len(c.PutClosed)+
		len(c.Delete)+len(c.DeleteReaders)+len(c.DeleteFeeds)+len(c.DeleteConsumers)+len(c.DeleteMirrors)+len(c.DeleteClosed) > 0
}

// compare returns, in the order of their names, the entries that are to be written
// and the names of those to be deleted, and how many there will be.
func compare[E any](should, stand map[string]E, same func(a, b E) bool) (put []E, del []string, count int) {
	for _, name := range slices.Sorted(maps.Keys(should)) {
		if was, exists := stand[name]; !exists || !same(was, should[name]) {
			put = append(put, should[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stand)) {
		if _, stays := should[name]; !stays {
			del = append(del, name)
		}
	}
	return put, del, len(should)
}

func (in Input) instrumentEntries(stands observed.RegistryState, next int64) map[string]wire.InstrumentEntry {
	all := map[string]wire.InstrumentEntry{}
	for i := range in.Instruments {
		inst := &in.Instruments[i]
		verdict := in.Verdicts[inst.Name]
		was := stands.Entries[inst.Name]
		exists := was.Instrument != "" // one that cannot be read is rewritten, or deleted
		if held := slices.Contains(in.Held.Instruments, inst.Name); held && !exists {
			continue
		} else if held && !in.unreadable(inst) {
			entry := was
			if entry.Access = accept.AccessEntry(&inst.Spec.Access); !sameEntry(was, entry) {
				entry.Revision = next
			}
			all[inst.Name] = entry
		} else if exists && in.unreadable(inst) {
			all[inst.Name] = in.keptInstrument(inst, was, next)
		} else if in.unreadable(inst) {
			continue
		} else if verdict.Stands() {
			entry := entryOf(inst, verdict, next, in.Secrets, was)
			entry.LegalHold = underHold(in.Site, inst)
			all[inst.Name] = entry
		} else if exists && verdict.Absent {
			entry := accept.Revoke(inst, was, in.Secrets)
			entry.Retention, entry.LegalHold = retentionEntry(inst.Spec.Archive.Expiry), underHold(in.Site, inst)
			if !sameEntry(was, entry) {
				entry.Revision = next
			}
			all[inst.Name] = entry
		}
	}
	return all
}

func (in Input) feedEntries(stands observed.RegistryState, next int64) map[string]wire.FeedEntry {
	all := map[string]wire.FeedEntry{}
	for i := range in.Feeds {
		feed := &in.Feeds[i]
		verdict := in.FeedsAre[feed.Name]
		if was := stands.Feeds[feed.Name]; was.Feed != "" && (verdict.Absent || in.unreadable(feed)) {
			all[feed.Name] = was
		} else if held := slices.Contains(in.Held.Feeds, feed.Name); held && was.Feed != "" {
			was.Live, was.Revision = string(feed.Spec.Access.Live), next
			all[feed.Name] = was
		} else if verdict.Served && !in.unreadable(feed) && !held {
			all[feed.Name] = feedEntry(in.Site, feed, verdict, next)
		}
	}
	return all
}

func (in Input) consumerEntries(stands observed.RegistryState, next int64) map[string]wire.ConsumerEntry {
	all := map[string]wire.ConsumerEntry{}
	for i := range in.Consumers {
		c := &in.Consumers[i]
		verdict := in.ConsumersAre[c.Name]
		was := stands.Consumers[c.Name]
		exists := was.Consumer != ""
		if exists && in.unreadable(c) {
			all[c.Name] = in.keptConsumer(c, was, next)
		} else if in.unreadable(c) {
			continue
		} else if exists && verdict.Absent {
			entry := was
			entry.Durable = cmp.Or(bus.KeptDurable(c, in.Secrets[bus.ConsumerSecretName(c)]), was.Durable)
			if len(was.Tokens) > 0 {
				entry.Tokens = bus.ConsumerTokens(c, in.Secrets, was.Tokens)
			}
			if !reflect.DeepEqual(entry, was) {
				entry.Revision = next
			}
			all[c.Name] = entry
		} else if verdict.Served {
			all[c.Name] = consumerEntry(c, verdict, in.Secrets, was, next)
		}
	}
	return all
}

// ReaderEntries are the readers whose names, tokens and certificates are in order, see
// ReadersProblem.
func (in Input) ReaderEntries(stands observed.RegistryState, next int64) map[string]wire.ReaderEntry {
	all := map[string]wire.ReaderEntry{}
	if in.Site == nil {
		return all
	}
	if finding.Unreadable(in.Site) != "" {
		return in.keptReaders(stands, next)
	}
	for name, tokens := range in.readerTokens(stands) {
		all[name] = wire.ReaderEntry{Revision: next, Reader: name, Tokens: tokens}
	}
	for name, certificates := range accept.ReaderCertificates(in.Site) {
		e := all[name]
		e.Revision, e.Reader, e.CertificateNames = next, name, certificates
		all[name] = e
	}
	for i := range in.Site.Spec.PulledBy { // also one that has no access: data that is due waits for it
		p := &in.Site.Spec.PulledBy[i]
		e := all[p.Reader]
		e.Revision, e.Reader = next, p.Reader
		e.Pulls = &wire.PullsEntry{Instruments: slices.Sorted(slices.Values(p.InstrumentNames)), HoldMillis: Millis(p.HoldRetention)}
		all[p.Reader] = e
	}
	return all
}

// readerTokens are the tokens of the Site's readers. A Secret that is not labeled as one with tokens adds none: those of its tokens that
// are in the registry stay, so that a missing label locks no reader out.
func (in Input) readerTokens(stands observed.RegistryState) map[string][]wire.TokenHash {
	ref := in.Site.Spec.ReadersSecretRef
	if ref == nil || in.Secrets[ref.Name] == nil || accept.WrittenByOperator(in.Secrets[ref.Name]) {
		return nil
	}
	secret, all := in.Secrets[ref.Name], map[string][]wire.TokenHash{}
	for name := range secret.Data {
		if len(validation.IsDNS1123Label(name)) > 0 || accept.TooGuessable(secret, name) {
			continue
		}
		hashes := accept.HashTokens(in.Site.UID, secret, name, stands.Readers[name].Tokens)
		if !accept.HoldsTokens(secret) {
			hashes = accept.HeldTokens(stands.Readers[name].Tokens, accept.TokensOf(secret, name))
		}
		if len(hashes) > 0 {
			all[name] = hashes
		}
	}
	return all
}

// sameEntry compares two entries, ignoring the revision in which they changed.
func sameEntry(a, b wire.InstrumentEntry) bool {
	a.Revision, b.Revision = 0, 0
	return reflect.DeepEqual(a, b)
}

// entryOf is an Instrument as gateways know it, with the listeners that are accepted. Was is the current entry.
func entryOf(inst *v1alpha1.Instrument, verdict accept.Verdict, revision int64, secrets workload.Secrets, was wire.InstrumentEntry) wire.InstrumentEntry {
	spec, listeners := &inst.Spec, verdict.AcceptedListeners(inst)
	entry := wire.InstrumentEntry{
		UID:              string(inst.UID),
		Generation:       inst.Generation,
		Revision:         revision,
		Instrument:       inst.Name,
		Gateway:          verdict.Gateway,
		Retired:          spec.State == v1alpha1.InstrumentRetired,
		Maintenance:      spec.State == v1alpha1.InstrumentMaintenance,
		Listeners:        make([]wire.ListenerEntry, len(listeners)),
		MaxObjectSize:    spec.Limits.MaxObjectSize.Value(),
		MaxConnections:   int(spec.Limits.MaxConnections),
		Acknowledge:      string(spec.Acknowledge),
		MediaType:        spec.Archive.MediaType,
		CadenceMillis:    spec.Cadence.Interval.Milliseconds(),
		SegmentAgeMillis: spec.Archive.Segment.MaxAge.Milliseconds(),
		SegmentSize:      spec.Archive.Segment.MaxSize.Value(),
		Station:          spec.Station,
		Forward:          forwardEntry(spec.Forward),
		Access:           accept.AccessEntry(&spec.Access),
		Rights:           accept.RightsEntry(spec.Rights),
		Retention:        retentionEntry(spec.Archive.Expiry),
		Sampling:         SamplingEntry(spec.Sampling),
		Channels:         channelEntries(spec.Channels),
		About:            aboutEntry(spec),
		Observes:         ObservesEntry(spec),
	}
	if spec.Cadence.LateAfter != nil {
		entry.LateAfterMillis = spec.Cadence.LateAfter.Milliseconds()
	}
	if spec.Naming != nil {
		entry.Naming = string(spec.Naming.Template)
	}
	if t := spec.ObservationTime; t != nil && t.Name != nil {
		entry.ObservationName = string(t.Name.Template)
	}
	for _, alias := range spec.Archive.Aliases {
		entry.Aliases = append(entry.Aliases, string(alias))
	}
	if spec.Archive.PackBelow != nil {
		entry.PackBelow = spec.Archive.PackBelow.Value()
	}
	if spec.Archive.Versions == v1alpha1.VersionsKeep {
		entry.Versions = wire.VersionsKeep
	}
	if spec.Archive.RepeatWindow != nil {
		entry.RepeatWindowMillis = spec.Archive.RepeatWindow.Milliseconds()
	}
	if spec.Limits.BytesPerSecond != nil {
		entry.BytesPerSecond = spec.Limits.BytesPerSecond.Value()
	}
	if spec.Limits.ObjectsPerSecond != nil {
		entry.ObjectsPerSecond = int64(*spec.Limits.ObjectsPerSecond)
	}
	var hashes []wire.TokenHash
	for i := range was.Listeners {
		hashes = append(hashes, was.Listeners[i].Tokens...)
	}
	for i := range listeners {
		entry.Listeners[i] = listenerEntry(listeners[i].WithDefaults())
		entry.Listeners[i].Tokens = accept.TokenHashes(inst, &listeners[i], secrets, hashes)
	}
	return entry
}

// underHold says whether the Instrument or its Site is under legal hold.
func underHold(site *v1alpha1.Site, inst *v1alpha1.Instrument) bool {
	return inst.Spec.Archive.LegalHold == v1alpha1.LegalHoldAll || siteUnderHold(site)
}

func siteUnderHold(site *v1alpha1.Site) bool {
	return site != nil && site.Spec.LegalHold == v1alpha1.LegalHoldAll
}

// siteUnderHold returns whether the marker has the Site under legal hold. If the Site cannot be read, a current hold does not end.
func (in Input) siteUnderHold(complete *wire.RegistryComplete) bool {
	stands := complete != nil && complete.LegalHold
	return siteUnderHold(in.Site) || stands && in.Site != nil && finding.Unreadable(in.Site) != ""
}

func retentionEntry(e *v1alpha1.Expiry) *wire.RetentionEntry {
	if e == nil {
		return nil
	}
	entry := &wire.RetentionEntry{HoldMillis: e.HoldRetention.Milliseconds(), MaxShare: int(e.MaxShare), WhenDiskFull: e.WhenDiskFull == v1alpha1.WhenDiskFullExpire,
		WhenMirrored: e.WhenDiskFull == v1alpha1.WhenDiskFullExpireMirrored}
	if e.Retention != nil {
		entry.MaxAgeMillis = e.Retention.Milliseconds()
	}
	if e.MaxSize != nil {
		entry.MaxSize = e.MaxSize.Value()
	}
	return entry
}

// ObservesEntry is nil if data is always due.
func ObservesEntry(spec *v1alpha1.InstrumentSpec) *wire.ObservesEntry {
	o := spec.Cadence.Observes
	if o == nil || o.Mode == v1alpha1.ObservesAlways {
		return nil
	}
	entry := &wire.ObservesEntry{Mode: string(o.Mode)}
	switch {
	case o.Daily != nil:
		entry.From, entry.To = o.Daily.From, o.Daily.To
	case o.SunBelow != nil && spec.Location != nil:
		entry.SunElevationDegrees, entry.Latitude, entry.Longitude = o.SunBelow.ElevationDegrees, spec.Location.Latitude, spec.Location.Longitude
	}
	return entry
}

func forwardEntry(forward *v1alpha1.Forward) *wire.ForwardEntry {
	if forward == nil {
		return nil
	}
	return &wire.ForwardEntry{Address: forward.Address, Protocol: string(forward.Protocol), Until: forward.EndTime.UTC()}
}

func listenerEntry(listener v1alpha1.Listener) wire.ListenerEntry {
	entry := wire.ListenerEntry{Name: listener.Name, Protocol: string(listener.Protocol), Port: uint16(listener.Port)}
	for _, p := range accept.Prefixes(listener.Sources) {
		entry.Sources = append(entry.Sources, p.String())
	}
	if mode := listener.Mode(); mode != v1alpha1.TLSNone {
		entry.TLS = string(mode)
	}
	entry.CertificateNames = accept.CertificateNames(&listener)
	switch listener.Protocol {
	case v1alpha1.ListenerTCP:
		entry.Framing = string(listener.TCP.Framing)
		entry.Receipt = string(listener.TCP.Receipt)
		entry.IdleTimeoutMillis = listener.TCP.IdleTimeout.Milliseconds()
		entry.MaxAgeMillis = listener.TCP.MaxAge.Milliseconds()
		if listener.TCP.IdleAfter != nil {
			entry.IdleAfterMillis = listener.TCP.IdleAfter.Milliseconds()
		}
		entry.Expect = expectEntry(listener.TCP.Expect)
	case v1alpha1.ListenerUDP:
		entry.Channel = listener.UDP.Channel
	case v1alpha1.ListenerHTTP:
		entry.IdleTimeoutMillis = listener.HTTP.IdleTimeout.Milliseconds()
		entry.MaxAgeMillis = listener.HTTP.MaxAge.Milliseconds()
		entry.UploadExpiryMillis = listener.HTTP.UploadExpiry.Milliseconds()
	}
	return entry
}

func expectEntry(expect *v1alpha1.Expect) *wire.ExpectEntry {
	if expect == nil {
		return nil
	}
	entry := &wire.ExpectEntry{Magic: strings.ToLower(expect.Magic), Trailer: strings.ToLower(expect.Trailer)}
	if expect.MinSize != nil {
		entry.MinSize = expect.MinSize.Value()
	}
	return entry
}
