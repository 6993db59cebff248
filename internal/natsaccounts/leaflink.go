// SPDX-License-Identifier: Apache-2.0

package natsaccounts

import (
	"fmt"
	"slices"

	"github.com/substorm/substorm/internal/wire"
)

// ours are subjects that neither come over a leaf's link to its hub nor leave by it.
var ours = []string{"obs.>", "notice.>", "gap.>", "request.>", "decision.>", "live.>", "health.>", "command.>", "$KV.>", "$OBJ.>", "_INBOX.>"}

// closedAPI are the parts of JetStream's API, without its prefix, that a hub has no use for.
var closedAPI = []string{"INFO", "STREAM.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>",
	"CONSUMER.MSG.>", "CONSUMER.DURABLE.>", "CONSUMER.LIST.>", "CONSUMER.NAMES.>", "CONSUMER.LEADER.>"}

// LeafDenyImports are the subjects that the server of a leaf lets its hub send nothing on, whatever the hub allows. The hub
// can still make and delete consumers of streams other than the Site's buckets. The Site has this code, and the server this
// JetStream domain.
func LeafDenyImports(code, domain string) []string {
	all, api := slices.Clone(ours), wire.JetStreamAPI(domain)
	for _, part := range closedAPI {
		all = append(all, api+"."+part)
	}
	for _, bucket := range []func(string) string{wire.RegistryBucket, wire.LedgerBucket, wire.LeaseBucket, wire.StatusBucket, wire.CursorBucket, wire.RequestBucket,
		wire.NamesBucket, wire.IndexBucket, wire.GapsBucket, wire.DescriptionBucket, wire.DownloadsBucket} {
		asks := fmt.Sprintf("%s.CONSUMER.*.KV_%s", api, bucket(code))
		all = append(all, asks+".>", asks)
	}
	return all
}

// LeafDenyExports are the subjects on which nothing leaves a leaf by itself: the hub asks for what it has not yet.
func LeafDenyExports() []string { return slices.Clone(ours) }
