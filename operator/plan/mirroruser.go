// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// MirrorUserName is the name in the tokens of a MirrorPartner's runs, and in nobody else's.
func MirrorUserName(namespace, partner string) string { return "mirror " + namespace + "/" + partner }

// MirrorUser is the user of the runs of a MirrorPartner: they read the registry, notices, the index of the archive, the ledger, and
// what is to be removed, and
// write what the partner confirmed: its column of the ledger, and nothing of other partners'. They keep how far they came, hold the
// leases of the partner, and report. They can neither write the registry nor publish notices: what they bring in goes through the
// gateways, as that of any sender.
func MirrorUser(site *v1alpha1.Site, partner string) JetStreamUser {
	code, inbox := site.Spec.Code, mirrorInbox(site, partner)
	u := JetStreamUser{
		Name:        MirrorUserName(site.Namespace, partner),
		InboxPrefix: inbox,
		Publish: append(harmless(),
			"$KV."+wire.LedgerBucket(code)+"."+wire.LedgerKey("*", "*", wire.StepMirrored, partner),
			"$KV."+wire.StatusBucket(code)+"."+wire.MirrorStatusKey(partner, "*"),
			"$KV."+wire.CursorBucket(code)+"."+wire.MirrorCursorKey(partner, "*"),
			"$KV."+wire.CursorBucket(code)+"."+wire.MirrorConfirmedKeys(partner),
			"$KV."+wire.LeaseBucket(code)+"."+wire.MirrorLease(partner, "*"),
			"$JS.API.DIRECT.GET."+wire.NoticeStream(code)+".>", "$JS.API.STREAM.MSG.GET."+wire.NoticeStream(code)),
		Subscribe: []string{inbox + ".>"},
	}
	u.Publish = append(u.Publish, ownConsumers(wire.NoticeStream(code))...)
	u.Publish = append(u.Publish, "$JS.API.CONSUMER.MSG.NEXT."+wire.NoticeStream(code)+".*")
	for _, b := range []struct {
		name   string
		follow bool
	}{{wire.RegistryBucket(code), true}, {wire.LedgerBucket(code), true}, {wire.CursorBucket(code), true}, {wire.IndexBucket(code), true}, {wire.LeaseBucket(code), false}} {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET.KV_"+b.name+".>", "$JS.API.STREAM.MSG.GET.KV_"+b.name)
		if b.follow {
			u.Publish = append(u.Publish, ownConsumers("KV_"+b.name)...)
		}
	}
	return u
}

// mirrorInbox begins the inboxes of a MirrorPartner's runs, as feedServerInbox does.
func mirrorInbox(site *v1alpha1.Site, partner string) string {
	return InboxPrefix(MirrorName(partner)) + "_" + site.Spec.Code
}
