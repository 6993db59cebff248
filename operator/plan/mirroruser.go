// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// MirrorUserName is the name in the tokens of a MirrorPartner's runs, and in nobody else's.
func MirrorUserName(namespace, partner string) string { return "mirror " + namespace + "/" + partner }

// MirrorUser is the user of the runs of a MirrorPartner: they read the registry, notices and the index of the archive, keep how far they
// came, hold the leases of the partner, and report. They can neither write what the operator has in the registry nor publish notices:
// what they bring in goes through the gateways, as that of any sender.
func MirrorUser(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) JetStreamUser {
	code, partner := site.Spec.Code, m.Name
	inbox := mirrorInbox(site, partner)
	u := JetStreamUser{
		Name:        MirrorUserName(site.Namespace, partner),
		InboxPrefix: inbox,
		Publish: append(harmless(),
			"$KV."+wire.StatusBucket(code)+"."+wire.MirrorStatusKey(partner, "*"),
			"$KV."+wire.CursorBucket(code)+"."+wire.MirrorCursorKey(partner, "*"),
			"$KV."+wire.LeaseBucket(code)+"."+wire.MirrorLease(partner, "*"),
			"$JS.API.CONSUMER.MSG.NEXT."+wire.NoticeStream(code)+".*"),
		Subscribe: []string{inbox + ".>"},
	}
	reads, follows := []string{wire.NoticeStream(code)}, []string{wire.NoticeStream(code)}
	for _, bucket := range []string{wire.RegistryBucket(code), wire.IndexBucket(code)} {
		reads, follows = append(reads, "KV_"+bucket), append(follows, "KV_"+bucket)
	}
	for _, bucket := range []string{wire.CursorBucket(code), wire.LeaseBucket(code)} {
		reads = append(reads, "KV_"+bucket)
	}
	if m.Spec.Direction == v1alpha1.MirrorPull {
		u.Publish = append(u.Publish, pullSubjects(code, m)...)
	} else {
		u.Publish = append(u.Publish, pushSubjects(code, partner)...)
		reads, follows = append(reads, "KV_"+wire.LedgerBucket(code)), append(follows, "KV_"+wire.LedgerBucket(code), "KV_"+wire.CursorBucket(code))
	}
	for _, name := range reads {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET."+name+".>", "$JS.API.STREAM.MSG.GET."+name)
	}
	for _, name := range follows {
		u.Publish = append(u.Publish, ownConsumers(name)...)
	}
	return u
}

// pushSubjects are what runs that push may send besides: they write what the partner confirmed, which is its column of the ledger and
// what it removed, and nothing of other partners'.
func pushSubjects(code, partner string) []string {
	return []string{
		"$KV." + wire.LedgerBucket(code) + "." + wire.LedgerKey("*", "*", wire.StepMirrored, partner),
		"$KV." + wire.CursorBucket(code) + "." + wire.MirrorConfirmedKeys(partner),
	}
}

// pullSubjects are what runs that pull may send besides: they read the reports of gateways, which say where objects are sent to, and
// write which certificate they show there. Where another Substorm is pulled from, they write what its instruments are, and request
// changes of what came from it: of no other Site's, and of none that the Site received itself.
func pullSubjects(code string, m *v1alpha1.MirrorPartner) []string {
	status, registry := wire.StatusBucket(code), "$KV."+wire.RegistryBucket(code)+"."
	reports := "$KV." + status + "." + wire.GatewayStatusKey(">")
	subjects := []string{
		"$JS.API.DIRECT.GET.KV_" + status + "." + reports, "$JS.API.CONSUMER.CREATE.KV_" + status + ".*." + reports,
		"$JS.API.CONSUMER.INFO.KV_" + status + ".*", "$JS.API.CONSUMER.DELETE.KV_" + status + ".*",
		registry + wire.RegistryMoverKey(m.Name, "*"),
	}
	if origin := originOf(m.Spec.HTTPS); origin != "" {
		subjects = append(subjects, registry+wire.RegistryGuestKey(origin, "*"), wire.RequestSubject(code, wire.GuestName(origin, "*")))
	}
	return subjects
}

// mirrorInbox begins the inboxes of a MirrorPartner's runs, as feedServerInbox does.
func mirrorInbox(site *v1alpha1.Site, partner string) string {
	return InboxPrefix(MirrorName(partner)) + "_" + site.Spec.Code
}
