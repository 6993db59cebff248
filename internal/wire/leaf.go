// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// A leaf is a Site elsewhere whose base streams a hub sources: they are in
// another JetStream domain, which the hub reaches over a leaf link.

// JetStreamAPI begins the subjects on which the JetStream of a domain is asked
// from another one.
func JetStreamAPI(domain string) string { return "$JS." + domain + ".API" }

// SourcedPrefix begins the subjects on which a leaf's messages travel to the hub
// that sources them. No stream captures them: each message gets its own subject
// back as it is stored.
func SourcedPrefix(hub, leaf string) string { return "sourced." + hub + "." + leaf }

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

// SelectedNotices matches the notices of what a list of instruments has: an
// instrument of the Site, or all of a leaf, as LeafInstruments.
func SelectedNotices(site, instrument string) string {
	if leaf, ok := ParseLeafInstruments(instrument); ok {
		return NoticeSubjects(leaf)
	}
	return NoticeSubject(site, instrument)
}

// SelectedObservations match the telemetry of an instrument of the Site, or of all of
// a leaf, as LeafInstruments: of some channels, or of all where there are none.
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
