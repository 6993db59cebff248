// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"time"
)

// sampleRetracted is an object whose bytes are kept and not shown any more.
func sampleRetracted() Record {
	r := samplePublished()
	r.State, r.Reason, r.RetractedAt = StateRetracted, "the shutter was closed", ptr(sampleTime.Add(time.Hour))
	return r
}

// sampleRestored is an object that was retracted and is shown again.
func sampleRestored() Record {
	r := sampleRetracted()
	r.State, r.Reason, r.ChangedBy, r.RestoredAt = StateCurrent, "it was another shutter", "anna@thule", ptr(sampleTime.Add(2*time.Hour))
	return r
}

// samplePurged is an object whose bytes are gone.
func samplePurged() Record {
	r := sampleRetracted()
	r.State, r.Reason, r.ChangedBy, r.PurgedAt = StatePurged, "a person is in the picture", "anna@thule", ptr(sampleTime.Add(3*time.Hour))
	return r
}

func sampleSupersededEarly() Superseded {
	return Superseded{IDs: []string{sampleName().Versions[0].Key}}
}

func sampleLostManifests() LostManifests {
	return LostManifests{Found: sampleEpochSweepCursor().Whole}
}

func sampleRemoval() Removal {
	r := samplePurged()
	return Removal{Instrument: "allsky-1", Day: DayOf(r.ReceivedAt), ID: r.ID, Reason: r.Reason, By: r.ChangedBy, At: *r.PurgedAt}
}

// sampleExpiry is a day that is due to expire.
func sampleExpiry() Removal {
	return Removal{Instrument: "allsky-1", Day: "2016-11-21", Reason: "older than 3650 days", By: "spec.archive.expiry", At: sampleTime}
}

// sampleSuperseded is the first object of a name that has a second one.
func sampleSuperseded() Record {
	c := sampleName()
	r, v := sampleNamed(), c.Versions[0]
	r.ID, r.Key, r.Size, r.Digest, r.ReceivedAt = v.Key, v.Key, v.Size, v.Digest, v.ReceivedAt
	r.State, r.Version, r.Supersedes = StateSuperseded, 0, ""
	return r
}

// sampleChanges is a part with lines that replace earlier ones.
func sampleChanges() Manifest {
	return Manifest{
		Header: ManifestHeader{Format: Format, Site: "thule", Instrument: "allsky-1", Day: "2026-11-21", Entries: 3, Changes: 2,
			ObservedFrom: sampleRaw().ObservedFrom, ObservedTo: sampleRaw().ObservedTo, Writer: "gateway-1", Incarnation: "01k9zqv7r4"},
		Records: []Record{samplePacked(), sampleRetracted(), sampleSuperseded()},
	}
}

func sampleRootDay() RootDay {
	return RootDay{Day: "2026-11-21", Version: 2, Digest: ptr(sampleDigest("version")), Parts: PartNumbers{{1441, 1443}, {1445, 1445}},
		Entries: 2881, Duplicates: 3, Bytes: 576_000_000, ObservedFrom: ptr(sampleTime.Add(-24 * time.Hour)), ObservedTo: ptr(sampleTime.Add(-time.Minute)),
		Dirs: []string{"2026/11/20", "2026/11/21"}, Deeper: true,
		FirstPath: "2026/11/20/rank_235958.jpg", LastPath: "2026/11/21/rank_235958~2.jpg"}
}

func sampleIndex() IndexEntry {
	return IndexEntry{Root: 17, RootIncarnation: "01k9zqv7r4", Open: []RootDay{sampleRootDay(), {Day: "2026-11-22", Parts: PartNumbers{{1, 1}}, Entries: 1, Bytes: 5,
		Dirs: []string{""}, FirstPath: "first", LastPath: "first"}}, LatestObserved: ptr(sampleTime)}
}

func sampleRoot() Root {
	return Root{Header: RootHeader{Format: Format, Site: "thule", Instrument: "allsky-1", Number: 17, Days: 2, Writer: "gateway-1", Incarnation: "01k9zqv7r4"},
		Days: []RootDay{{Day: "2015-03-17", Version: 1, Digest: ptr(sampleDigest("first")), Entries: 1, Bytes: 5}, sampleRootDay()}}
}

func sampleDamage() Damage {
	return Damage{Instrument: "allsky-1", Day: "2026-11-21", ID: samplePublished().ID, Key: samplePublished().Key, Size: 5,
		Digest: samplePublished().Digest, Path: samplePublished().Path, Cause: DamageDamaged, FoundAt: sampleTime.Add(time.Hour),
		FoundBy: "thule-feed-server-7d9c5-abcde", Confirmed: true}
}

func sampleScrubCursor() ScrubCursor {
	return ScrubCursor{BegunAt: sampleTime, Instrument: "allsky-1", Day: "2026-11-20", Records: 4711, Objects: 86400, Bytes: 17_280_000_000, Damaged: 1}
}

// sampleNextScrubCursor is of the pass after the first.
func sampleEpochSweepCursor() SweepCursor {
	c := sampleSweepCursor()
	c.Epoch = "1a2008d700b"
	return c
}

func sampleNextScrubCursor() ScrubCursor {
	c := sampleScrubCursor()
	c.LastPass = &ScrubPass{BegunAt: sampleTime.Add(-9 * 24 * time.Hour), EndedAt: ptr(sampleTime.Add(-8 * 24 * time.Hour)), Objects: 98765, Bytes: 19_753_000_000, Unreadable: 1}
	return c
}

func sampleArchiveRequest() ArchiveRequest {
	r := samplePurged()
	return ArchiveRequest{Site: "thule", Instrument: "allsky-1", Run: "01k9zqv7r4", Action: ActionPurge, ID: r.ID,
		ReceivedAt: r.ReceivedAt, Reason: "a person is in the picture", By: "anna@desk"}
}

func sampleDecision() ArchiveDecision {
	r := sampleArchiveRequest()
	return ArchiveDecision{Site: r.Site, Instrument: r.Instrument, Run: r.Run, Action: r.Action, ID: r.ID,
		Result: DecisionDone, State: StatePurged, DecidedAt: sampleTime.Add(time.Hour)}
}

func sampleRefusedDecision() ArchiveDecision {
	d := sampleDecision()
	d.Result, d.State, d.Reason, d.Message = DecisionRefused, StateCurrent, "LegalHold", "the instrument is under legal hold"
	return d
}

func decodeRootBytes(data []byte) (any, error) { return DecodeRoot(bytes.NewReader(data)) }

func goldenIndexRecords() []goldenRecord {
	retracted := sampleNotice(sampleRetracted(), "allsky-1")
	restored, purged := sampleNotice(sampleRestored(), "allsky-1"), sampleNotice(samplePurged(), "allsky-1")
	return []goldenRecord{
		{"notice-retracted.json", encoded(retracted), decoded(Decode[Notice]), retracted},
		{"notice-restored.json", encoded(restored), decoded(Decode[Notice]), restored},
		{"notice-purged.json", encoded(purged), decoded(Decode[Notice]), purged},
		{"request-archive.json", encoded(sampleArchiveRequest()), decoded(Decode[ArchiveRequest]), sampleArchiveRequest()},
		{"decision-done.json", encoded(sampleDecision()), decoded(Decode[ArchiveDecision]), sampleDecision()},
		{"decision-refused.json", encoded(sampleRefusedDecision()), decoded(Decode[ArchiveDecision]), sampleRefusedDecision()},
		{"cursor-superseded.json", encoded(sampleSupersededEarly()), decoded(Decode[Superseded]), sampleSupersededEarly()},
		{"cursor-lost-manifests.json", encoded(sampleLostManifests()), decoded(Decode[LostManifests]), sampleLostManifests()},
		{"removal.json", encoded(sampleRemoval()), decoded(Decode[Removal]), sampleRemoval()},
		{"removal-day.json", encoded(sampleExpiry()), decoded(Decode[Removal]), sampleExpiry()},
		{"status-damaged.json", encoded(sampleDamage()), decoded(Decode[Damage]), sampleDamage()},
		{"status-failedpacks.json", encoded(sampleFailedPacks()), decoded(decodeFailedPacks), sampleFailedPacks()},
		{"cursor-sweep-epoch.json", encoded(sampleEpochSweepCursor()), decoded(Decode[SweepCursor]), sampleEpochSweepCursor()},
		{"cursor-scrub-next.json", encoded(sampleNextScrubCursor()), decoded(Decode[ScrubCursor]), sampleNextScrubCursor()},
		{"cursor-scrub.json", encoded(sampleScrubCursor()), decoded(Decode[ScrubCursor]), sampleScrubCursor()},
		{"index.json", encoded(sampleIndex()), decoded(Decode[IndexEntry]), sampleIndex()},
		{"manifest-changes.jsonl.zst", nil, decodeManifestBytes, sampleChanges()},
		{"manifest-root.jsonl.zst", nil, decodeRootBytes, sampleRoot()},
	}
}

func sampleFailedPacks() FailedPacks {
	return FailedPacks{Gateway: "gateway-0", Packs: []string{PackKey("thule", sampleTime, "gateway-0", "01k9zqv7r3", 7)}}
}

func decodeFailedPacks(data []byte) (FailedPacks, error) {
	return DecodeFailedPacks(FailedPacksKey("gateway-0"), data)
}
