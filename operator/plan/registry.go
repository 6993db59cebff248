// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// RegistryChange is what must be written to a Site's registry, in this order:
// Put, Delete, then Complete. It is empty where the registry is as it should be.
type RegistryChange struct {
	Put      []wire.InstrumentEntry `json:"put,omitempty"`
	Delete   []string               `json:"delete,omitempty"`
	Complete *wire.RegistryComplete `json:"complete,omitempty"`
}

// Registry compares the accepted Instruments with what stands in the registry:
// current by instrument, closed by complete (nil where the bucket has no
// marker). Revision is the newest that was ever seen; a change gets the next one.
// Secrets are those that exist of TokenSecrets; one that could not be asked for
// must not be left out, since what is not there revokes.
func Registry(instruments []v1alpha1.Instrument, verdicts map[string]Verdict, secrets Secrets,
	current map[string]wire.InstrumentEntry, complete *wire.RegistryComplete, revision int64,
) RegistryChange {
	if complete != nil {
		revision = max(revision, complete.Revision)
	}
	next := revision + 1
	var change RegistryChange
	keep := map[string]bool{}
	for i := range instruments {
		inst := &instruments[i]
		verdict := verdicts[inst.Name]
		was, exists := current[inst.Name]
		if verdict.OK() {
			keep[inst.Name] = true
			entry := entryOf(inst, verdict.Gateway, next, secrets, was)
			if !exists || !sameEntry(was, entry) {
				change.Put = append(change.Put, entry)
			}
		} else if exists && verdict.Absent {
			keep[inst.Name] = true
			if entry := revoke(inst, was, secrets); !sameEntry(was, entry) {
				entry.Revision = next
				change.Put = append(change.Put, entry)
			}
		}
	}
	for name := range current {
		if !keep[name] {
			change.Delete = append(change.Delete, name)
		}
	}
	slices.Sort(change.Delete)
	slices.SortFunc(change.Put, func(a, b wire.InstrumentEntry) int { return cmp.Compare(a.Instrument, b.Instrument) })
	if len(change.Put)+len(change.Delete) > 0 || complete == nil || complete.Count != len(keep) {
		change.Complete = &wire.RegistryComplete{Format: wire.Format, Revision: next, Count: len(keep)}
	}
	return change
}

// sameEntry compares two entries but for the revision in which they changed.
func sameEntry(a, b wire.InstrumentEntry) bool {
	a.Revision, b.Revision = 0, 0
	return reflect.DeepEqual(a, b)
}

// entryOf is an Instrument as gateways know it. Was is the entry that stands.
func entryOf(inst *v1alpha1.Instrument, gateway string, revision int64, secrets Secrets, was wire.InstrumentEntry) wire.InstrumentEntry {
	spec := &inst.Spec
	entry := wire.InstrumentEntry{
		Format:           wire.Format,
		UID:              string(inst.UID),
		Generation:       inst.Generation,
		Revision:         revision,
		Instrument:       inst.Name,
		Gateway:          gateway,
		Retired:          spec.State == v1alpha1.InstrumentRetired,
		Ways:             make([]wire.WayEntry, len(spec.Ways)),
		MaxObjectSize:    spec.Limits.MaxObjectSize.Value(),
		MaxConnections:   int(spec.Limits.MaxConnections),
		Acknowledge:      string(spec.Acknowledge),
		MediaType:        spec.Archive.MediaType,
		CadenceMillis:    spec.Cadence.Interval.Milliseconds(),
		SegmentAgeMillis: spec.Archive.Segment.MaxAge.Milliseconds(),
		SegmentSize:      spec.Archive.Segment.MaxSize.Value(),
		Station:          spec.Station,
		Forward:          forwardEntry(spec.Forward),
		Access:           accessEntry(&spec.Access),
	}
	if spec.Naming != nil {
		entry.Naming = string(spec.Naming.Template)
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
	for i := range was.Ways {
		hashes = append(hashes, was.Ways[i].Tokens...)
	}
	for i := range spec.Ways {
		entry.Ways[i] = wayEntry(&spec.Ways[i])
		entry.Ways[i].Tokens = tokenHashes(inst, &spec.Ways[i], secrets, hashes)
	}
	return entry
}

func forwardEntry(forward *v1alpha1.Forward) *wire.ForwardEntry {
	if forward == nil {
		return nil
	}
	return &wire.ForwardEntry{Address: forward.Address, Protocol: string(forward.Protocol), Until: forward.Until.UTC()}
}

func wayEntry(way *v1alpha1.Way) wire.WayEntry {
	entry := wire.WayEntry{Protocol: string(way.Type), Port: uint16(port(way))}
	for _, p := range prefixes(way.Sources) {
		entry.Sources = append(entry.Sources, p.String())
	}
	if mode := wayTLS(way); mode != v1alpha1.TLSNone {
		entry.TLS = string(mode)
	}
	entry.CertificateNames = certificateNames(way)
	if way.TCP != nil {
		entry.Framing = string(way.TCP.Framing)
		entry.Receipt = string(way.TCP.Receipt)
		entry.IdleTimeoutMillis = way.TCP.IdleTimeout.Milliseconds()
		entry.MaxAgeMillis = way.TCP.MaxAge.Milliseconds()
		if way.TCP.IdleAfter != nil {
			entry.IdleAfterMillis = way.TCP.IdleAfter.Milliseconds()
		}
		entry.Expect = expectEntry(way.TCP.Expect)
	}
	if way.UDP != nil {
		entry.Channel = way.UDP.Channel
	}
	if way.HTTP != nil {
		entry.IdleTimeoutMillis = way.HTTP.IdleTimeout.Milliseconds()
		entry.MaxAgeMillis = way.HTTP.MaxAge.Milliseconds()
		entry.UploadExpiryMillis = way.HTTP.UploadExpiry.Milliseconds()
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
