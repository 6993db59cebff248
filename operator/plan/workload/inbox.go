// SPDX-License-Identifier: Apache-2.0

package workload

import "github.com/substorm/substorm/operator/api/v1alpha1"

// InboxPrefix begins the inboxes of a pool's programs.
func InboxPrefix(pool string) string { return "_INBOX_" + pool }

// FeedServerInbox begins the inboxes of a FeedServer's pods. Sites of several namespaces may
// share an account, and FeedServers there a name: their Sites' codes differ.
func FeedServerInbox(site *v1alpha1.Site, server string) string {
	return InboxPrefix(FeedServerName(server)) + "_" + site.Spec.Code
}

// MirrorInbox begins the inboxes of a MirrorPartner's runs, as feedServerInbox does.
func MirrorInbox(site *v1alpha1.Site, partner string) string {
	return InboxPrefix(MirrorName(partner)) + "_" + site.Spec.Code
}
