// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"
)

// A leaf is a Site elsewhere whose base streams a hub sources: they are in
// another JetStream domain, which the hub reaches over a leaf link.

// JetStreamAPI begins the subjects on which the JetStream of a domain is asked
// from another one.
func JetStreamAPI(domain string) string { return "$JS." + domain + ".API" }

// SourcedPrefix begins the subjects on which a leaf's messages travel to the hub
// that sources them. No stream captures them: each message gets its own subject
// back as it is stored.
func SourcedPrefix(hub, leaf string) string { return "sourced." + hub + "." + leaf }

// LeavesAPI begins the subjects on which the account with a hub's streams asks the
// JetStream of the account that leaves link into.
const LeavesAPI = "leaves.API"

// CopiedSubjects match those on which the messages of that account's streams travel to
// the hub's. No leaf may publish on them.
const CopiedSubjects = "leaves.deliver.>"

// CopiedPrefix begins the subjects on which copies of one leaf's messages travel to the
// hub's streams.
func CopiedPrefix(hub, leaf string) string { return "leaves.deliver." + hub + "." + leaf }

// CopiedObservationStream holds what a leaf's stream of telemetry sent to the hub, in the
// account that leaves link into, until the hub's own stream has it.
func CopiedObservationStream(hub, leaf string) string {
	return ObservationStream(hub) + "_" + leaf
}

// CopiedNoticeStream is CopiedObservationStream of notices.
func CopiedNoticeStream(hub, leaf string) string { return NoticeStream(hub) + "_" + leaf }

// ParseCopiedStream returns the leaf whose messages a stream of that name holds for the hub.
func ParseCopiedStream(hub, name string) (leaf string, ok bool) {
	for _, prefix := range []string{CopiedObservationStream(hub, ""), CopiedNoticeStream(hub, "")} {
		if leaf, ok = strings.CutPrefix(name, prefix); ok {
			return leaf, leaf != ""
		}
	}
	return "", false
}

// CopiedNotices are what a hub's stream of notices takes of CopiedNoticeStream: what
// SourcedNotices stores there, and nothing else that a leaf has sent.
func CopiedNotices(hub, leaf string) []SourcedSubject { return copied(hub, leaf, NoticeSubjects(leaf)) }

// CopiedObservations is CopiedNotices of telemetry.
func CopiedObservations(hub, leaf string) []SourcedSubject {
	return copied(hub, leaf, ObservationSubjects(leaf))
}

func copied(hub, leaf, own string) []SourcedSubject {
	refused := RefusedSubject(hub, leaf, ">")
	return []SourcedSubject{{own, own}, {refused, refused}}
}

// SourcePosition returns from which stream a message was taken and its sequence there,
// from its HeaderStreamSource; false where that cannot be read.
func SourcePosition(source string) (stream string, sequence uint64, ok bool) {
	fields := strings.Fields(source)
	if len(fields) < 2 {
		return "", 0, false
	}
	// A stream of another account or domain has a hash behind its name.
	stream, _, _ = strings.Cut(fields[0], ":")
	sequence, err := strconv.ParseUint(fields[1], 10, 64)
	return stream, sequence, err == nil
}

// SourcedSubject is a subject of a leaf's stream and the one under which the hub stores
// what comes on it.
type SourcedSubject struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// SourcedNotices are what a hub takes of a leaf's stream of notices: the leaf's notices,
// as they are. A leaf decides itself what it sends, whatever it is asked for. So what
// bears a subject of the hub's own is stored as refused, where no program reads it.
func SourcedNotices(hub, leaf string) []SourcedSubject {
	return sourced(hub, leaf, NoticeSubjects(leaf), NoticeStreamSubjects(hub)...)
}

// SourcedObservations is SourcedNotices of a leaf's stream of telemetry.
func SourcedObservations(hub, leaf string) []SourcedSubject {
	return sourced(hub, leaf, ObservationSubjects(leaf), ObservationSubjects(hub))
}

func sourced(hub, leaf, own string, hubs ...string) []SourcedSubject {
	all := []SourcedSubject{{own, own}}
	for _, s := range hubs {
		all = append(all, SourcedSubject{s, RefusedSubject(hub, leaf, s)})
	}
	return all
}

// RefusedSubject is under which a hub's stream stores what a leaf sent under a subject of
// the hub's own.
func RefusedSubject(hub, leaf, subject string) string {
	return "refused." + hub + "." + leaf + "." + subject
}

// HeaderStreamSource is JetStream's: the stream that a message was sourced from. A server replaces it as it stores a sourced message.
const HeaderStreamSource = "Nats-Stream-Source"

// IsForeign says whether a message in a base stream of a Site bears a subject of the
// Site's own and came from another stream, by its HeaderStreamSource: no program of the
// Site has published it.
func IsForeign(site, subject, source string) bool {
	p := strings.SplitN(subject, ".", 3)
	return source != "" && len(p) > 1 && p[1] == site
}

// leafInstruments ends what LeafInstruments returns. No instrument's name has it.
const leafInstruments = "/*"

// LeafInstruments stands for all instruments of a leaf where instruments are
// listed by name, as in FeedEntry: what the leaf calls them is not known at the hub.
func LeafInstruments(leaf string) string { return leaf + leafInstruments }

// ParseLeafInstruments returns the leaf that LeafInstruments was called with, and
// false for the name of an instrument.
func ParseLeafInstruments(name string) (leaf string, ok bool) {
	return strings.CutSuffix(name, leafInstruments)
}

// AllInstruments stands for all instruments of the Site where instruments are listed by
// name, as in FeedEntry.
const AllInstruments = "*"

// SelectedNotices match the notices of what a list of instruments has: an instrument
// of the Site, or all of them as AllInstruments, or all of a leaf, as LeafInstruments. Those of backfill only where that is
// asked for: by a subject of their own, which can come and go by itself.
func SelectedNotices(site, instrument string, backfill bool) []string {
	if leaf, ok := ParseLeafInstruments(instrument); ok {
		site, instrument = leaf, "*"
	}
	if !backfill {
		return []string{NoticeSubject(site, instrument)}
	}
	return []string{NoticeSubject(site, instrument), BackfillSubject(site, instrument)}
}

// SelectedObservations match the telemetry of an instrument of the Site, or of all of a leaf, as LeafInstruments: of some channels, or of
// all if none are named.
func SelectedObservations(site, instrument string, channels []string) []string {
	if leaf, ok := ParseLeafInstruments(instrument); ok {
		site, instrument = leaf, "*"
	}
	if len(channels) == 0 {
		return []string{ObservationSubjectsOf(site, instrument)}
	}
	all := make([]string, len(channels))
	for i, channel := range channels {
		all[i] = ObservationSubject(site, instrument, channel)
	}
	return all
}

// SiteOfStream returns the code of the Site whose stream has that name: a base
// stream, or one of a Feed's or a consumer's own. False for other streams.
func SiteOfStream(name string) (string, bool) {
	kind, rest, _ := strings.Cut(name, "_")
	site, own, isOwn := strings.Cut(rest, "_")
	switch kind + "_" {
	case ObservationStream(""), NoticeStream(""):
		return site, site != "" && !isOwn
	case "FEED_", "CONS_":
		return site, site != "" && own != ""
	}
	return "", false
}
