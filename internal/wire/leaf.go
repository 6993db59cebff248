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

// SiteOfStream returns the code of the Site whose base stream has that name, and
// false for other streams.
func SiteOfStream(name string) (string, bool) {
	for _, prefix := range []string{ObservationStream(""), NoticeStream("")} {
		if site, ok := strings.CutPrefix(name, prefix); ok && site != "" {
			return site, true
		}
	}
	return "", false
}
