// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// MirrorUserName is the name in the tokens of a MirrorPartner's runs, and in no others.
func MirrorUserName(namespace, partner string) string { return "mirror " + namespace + "/" + partner }

// MirrorUser is the user of the runs of a MirrorPartner: they read the registry and, where they need the archive, notices and its index;
// they keep how far they came, hold the leases of the partner, and report. In the buckets of cursors and leases they read only their own
// keys, and what is to be removed of an Instrument that has the partner's name: one pattern for all of its keys keeps the token short. They
// can neither write what the operator has in the registry nor publish notices: the data that they bring in goes through the gateways, like
// the data of any sender.
func MirrorUser(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) JetStreamUser {
	code, partner := site.Spec.Code, m.Name
	inbox := workload.MirrorInbox(site, partner)
	cursors, leases := wire.CursorBucket(code), wire.LeaseBucket(code)
	u := JetStreamUser{
		Name:        MirrorUserName(site.Namespace, partner),
		InboxPrefix: inbox,
		Publish: append(harmless(),
			"$KV."+wire.StatusBucket(code)+"."+wire.MirrorStatusKey(partner, "*"),
			"$KV."+cursors+"."+wire.MirrorCursorKey(partner, "*"), readsKeys(cursors, "*."+partner+".>"),
			"$KV."+leases+"."+wire.MirrorLease(partner, "*"), readsKeys(leases, wire.MirrorLease(partner, "*"))),
		Subscribe: []string{inbox + ".>"},
	}
	reads := []string{"KV_" + wire.RegistryBucket(code)}
	if workload.MirrorReadsArchive(m) {
		notices := wire.NoticeStream(code)
		reads = append(reads, notices, "KV_"+wire.IndexBucket(code))
		u.Publish = append(u.Publish, "$JS.API.CONSUMER.MSG.NEXT."+notices+".*")
	}
	if m.Spec.Direction == v1alpha1.MirrorPull {
		u.Publish = append(u.Publish, pullSubjects(code, m)...)
	} else {
		u.Publish = append(u.Publish, pushSubjects(code, partner)...)
	}
	for _, name := range reads {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET."+name+".>", "$JS.API.STREAM.MSG.GET."+name)
		u.Publish = append(u.Publish, ownConsumers(name)...)
	}
	return u
}

// readsKeys is the request for single keys of a bucket: it has the key in its subject, behind $KV and the bucket, which the stream's
// name says already. Permissions are short, as a token must fit into a line of the protocol.
func readsKeys(bucket, keys string) string {
	return "$JS.API.DIRECT.GET.KV_" + bucket + ".*.*." + keys
}

// followsKeys are the requests that watching such keys of a bucket makes.
func followsKeys(bucket string, keys ...string) []string {
	all := []string{"$JS.API.CONSUMER.INFO.KV_" + bucket + ".*", "$JS.API.CONSUMER.DELETE.KV_" + bucket + ".*"}
	for _, k := range keys {
		all = append(all, "$JS.API.CONSUMER.CREATE.KV_"+bucket+".*.*.*."+k)
	}
	return all
}

// pushSubjects are the additional subjects of runs that push: they write the partner's confirmations, which are its column of the ledger
// and the keys that it removed, and nothing of other partners. The bucket of cursors has the removals that partners are asked for; its
// leader says whether a replica is behind, and no permission restricts the leader's answers to single keys. The ledger is read from its
// leader alone.
func pushSubjects(code, partner string) []string {
	cursors, ledger := wire.CursorBucket(code), wire.LedgerBucket(code)
	return append(followsKeys(cursors, wire.RemovalKeys, wire.MirrorCursorKey(partner, "*")),
		"$KV."+ledger+"."+wire.LedgerKey("*", "*", wire.StepMirrored, partner), "$JS.API.STREAM.MSG.GET.KV_"+ledger,
		"$KV."+cursors+"."+wire.MirrorConfirmedKeys(partner),
		readsKeys(cursors, wire.RemovalKeys), "$JS.API.STREAM.MSG.GET.KV_"+cursors)
}

// pullSubjects are the additional subjects of runs that pull: they read the reports of gateways, which have the address to send objects to,
// and write which certificate they present there. If they pull from another Substorm, they write the descriptions of its instruments, and
// request changes of objects that came from it: of no other Site's, and of none that the Site received itself.
func pullSubjects(code string, m *v1alpha1.MirrorPartner) []string {
	status, registry := wire.StatusBucket(code), "$KV."+wire.RegistryBucket(code)+"."
	reports := wire.GatewayStatusKey(">")
	subjects := append(followsKeys(status, reports), readsKeys(status, reports), registry+wire.RegistryMoverKey(m.Name, "*"))
	if origin := workload.OriginOf(m.Spec.HTTPS); origin != "" {
		subjects = append(subjects, registry+wire.RegistryGuestKey(origin, "*"), wire.RequestSubject(code, wire.GuestName(origin, "*")))
	}
	return subjects
}
