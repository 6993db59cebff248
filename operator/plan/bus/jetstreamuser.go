// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/workload"
)

// JetStreamUser is a user of the Site's account that may do only what its
// program needs.
type JetStreamUser struct {
	// Name is for people; the user's token has it.
	Name string `json:"name"`
	// InboxPrefix begins the subjects on which the user gets its answers.
	InboxPrefix string `json:"inboxPrefix"`
	// LeafOnly admits only servers that link to ours as a leaf, and no clients.
	LeafOnly bool `json:"leafOnly,omitempty"`
	// ClientOnly admits no server that links as a leaf: for those, NATS does not check acknowledgements against the permissions.
	ClientOnly bool `json:"clientOnly,omitempty"`
	// Publish and Subscribe are the subjects that are allowed; all others are not, and neither are those of DenyPublish.
	Publish     []string `json:"publish"`
	DenyPublish []string `json:"denyPublish,omitempty"`
	Subscribe   []string `json:"subscribe"`
}

// GatewayUserName is the name in the tokens of a pool's gateways, and in no others.
func GatewayUserName(namespace, pool string) string {
	return "ingest-gateway " + namespace + "/" + pool
}

// FeedServerUserName is the user name of the pods of a FeedServer.
func FeedServerUserName(namespace, server string) string {
	return "feed-server " + namespace + "/" + server
}

// ConsumerUserName is the user name of a FeedConsumer.
func ConsumerUserName(c *v1alpha1.FeedConsumer) string {
	return "consumer " + c.Namespace + "/" + c.Name
}

// GatewayUser is the user of a pool: it publishes data, reads the registry and what consumers ask of instruments, counts in the ledger,
// claims names, and reports about gateways. It can neither read nor trim the streams that it fills, and not write the registry, what
// consumers ask, what the archivist keeps, what others report, or the level of space weather.
//
// A token travels in one CONNECT line, of which servers accept 4 KiB (max_control_line): permissions that do no harm are granted for all
// streams at once.
func GatewayUser(site *v1alpha1.Site, pool string) JetStreamUser {
	code := site.Spec.Code
	inbox := workload.InboxPrefix(pool)
	u := JetStreamUser{
		Name:        GatewayUserName(site.Namespace, pool),
		InboxPrefix: inbox,
		Publish:     append(harmless(), wire.ObservationSubjects(code), wire.NoticeSubjects(code)),
		Subscribe:   []string{inbox + ".>"},
	}
	for _, b := range []struct {
		name               string
		get, follow, write bool
	}{
		{wire.RegistryBucket(code), true, true, false}, {wire.RequestBucket(code), false, true, false}, {wire.CursorBucket(code), true, false, false},
		{wire.LedgerBucket(code), true, false, true}, {wire.StatusBucket(code), true, true, false}, {wire.NamesBucket(code), true, false, true},
	} {
		if b.get { // the leader is asked where a replica may be behind
			u.Publish = append(u.Publish, "$JS.API.DIRECT.GET.KV_"+b.name+".>", "$JS.API.STREAM.MSG.GET.KV_"+b.name)
		}
		if b.follow {
			u.Publish = append(u.Publish, ownConsumers("KV_"+b.name)...)
		}
		if b.write {
			u.Publish = append(u.Publish, "$KV."+b.name+".>")
		}
	}
	for _, keys := range []string{wire.GatewayStatusKey("*"), wire.InstrumentStatusKey("*", "*"), wire.RefusalStatusKey("*", "*"), wire.SenderStatusKey("*", "*"),
		wire.FailedPacksKeys, wire.DamageKeys} {
		u.Publish = append(u.Publish, "$KV."+wire.StatusBucket(code)+"."+keys)
	}
	return u
}

// ArchivistUserName is the user name of a Site's archivist.
func ArchivistUserName(site *v1alpha1.Site) string {
	return "archivist " + site.Namespace + "/" + site.Name
}

// ArchivistUser is the user of a Site's archivist: it consumes, reads and trims the two base streams, publishes segments, decisions and the
// objects that it announces again, reads the registry, and keeps lease, cursors, indexes, gaps, names, descriptions, its columns of the
// ledger and its report, and restores the registry's lost entries of guests. It can neither create nor change nor delete a stream, and
// write nothing else of the registry, nor what consumers ask, nor the level of space weather.
func ArchivistUser(site *v1alpha1.Site) JetStreamUser {
	code := site.Spec.Code
	inbox := workload.InboxPrefix(workload.ArchivistName(site))
	u := JetStreamUser{
		Name:        ArchivistUserName(site),
		InboxPrefix: inbox,
		Publish: append(harmless(), wire.NoticeSubjects(code), wire.DecisionSubjects(code), "$JS.API.DIRECT.GET.>",
			// The leader says where a stream ends and what a bucket holds: a replica may be behind.
			"$JS.API.STREAM.MSG.GET.*"),
		Subscribe: []string{inbox + ".>"},
	}
	u.Publish = append(u.Publish, consumersOfAll()...)
	for _, stream := range []string{wire.ObservationStream(code), wire.NoticeStream(code)} {
		u.Publish = append(u.Publish, "$JS.API.STREAM.PURGE."+stream, acks(stream, "*")[0], acks(stream, "*")[1])
	}
	for _, bucket := range []string{
		wire.LedgerBucket(code), wire.StatusBucket(code), wire.CursorBucket(code), wire.GapsBucket(code), wire.LeaseBucket(code),
		wire.NamesBucket(code), wire.IndexBucket(code), wire.DescriptionBucket(code),
	} {
		u.Publish = append(u.Publish, "$KV."+bucket+".>")
	}
	u.Publish = append(u.Publish, "$KV."+wire.RegistryBucket(code)+"."+wire.RegistryGuestKey("*", "*"))
	u.DenyPublish = []string{surgeLevelKey(code)}
	return u
}

// OperatorUser is the user of the operator itself for one Site: it creates the Site's streams and buckets, those of Feeds and
// FeedConsumers, and their durables; it writes the registry, keeps how far consumers have come, reads reports, looks at the first and the
// last message of a Feed, and publishes changes of conditions and levels. It can delete and purge none of the Site's own streams.
// Permissions know no prefixes of names, so that streams of Feeds, which come and go, cannot be named.
func OperatorUser(site *v1alpha1.Site) JetStreamUser {
	code := site.Spec.Code
	inbox := "_INBOX_operator_" + code
	status := wire.StatusBucket(code)
	u := JetStreamUser{
		Name:        "operator " + site.Namespace + "/" + site.Name,
		InboxPrefix: inbox,
		Publish: append(harmless(), wire.HealthSubjects(code), "$KV."+wire.RegistryBucket(code)+".>", "$KV."+wire.CursorBucket(code)+"."+wire.PositionCursorKeys,
			"$KV."+status+"."+wire.ConsumerStatusKey("*", "*"), "$KV."+status+"."+wire.FeedServerStatusKey("*"), "$KV."+status+"."+wire.MirrorStatusKey("*", "*"), surgeLevelKey(code),
			"$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE.*",
			// INFO, DELETE, PAUSE, and UNPIN: one subject, since credentials must fit a CONNECT line.
			"$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.*.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*"),
		Subscribe: []string{inbox + ".>"},
	}
	if len(site.Spec.Leaves) > 0 { // how far they have come
		u.Publish = append(u.Publish, "$JS.API.STREAM.MSG.GET."+wire.ObservationStream(code), "$JS.API.STREAM.MSG.GET."+wire.NoticeStream(code))
	}
	// The operator compares the whole registry with the plan, and reads the positions of consumers when it begins.
	u.Publish = append(u.Publish, "$JS.API.STREAM.MSG.GET.KV_"+wire.RegistryBucket(code), "$JS.API.STREAM.MSG.GET.KV_"+wire.CursorBucket(code))
	u.Publish = append(u.Publish, "$JS.API.DIRECT.GET.KV_"+wire.RegistryBucket(code)+".>")
	for _, s := range Streams(site) {
		u.DenyPublish = append(u.DenyPublish, "$JS.API.STREAM.DELETE."+s.Name, "$JS.API.STREAM.PURGE."+s.Name)
	}
	for _, b := range Buckets(site) {
		u.DenyPublish = append(u.DenyPublish, "$JS.API.STREAM.DELETE.KV_"+b.Name, "$JS.API.STREAM.PURGE.KV_"+b.Name)
	}
	return u
}

// FeedServerUser is the user of the pods of a FeedServer: they read the Feeds' messages, the registry and the leases, fill consumers'
// streams, look after durables, publish gap records, note how far consumers have come and what they ask of instruments, count downloads,
// report damage, and report about themselves. They look names of objects up, and cannot list them; of the ledger they write the columns of
// readers that pull, and cannot see it.
func FeedServerUser(site *v1alpha1.Site, server string) JetStreamUser {
	code := site.Spec.Code
	inbox := workload.FeedServerInbox(site, server)
	status, lease := wire.StatusBucket(code), wire.LeaseBucket(code)
	u := JetStreamUser{
		Name:        FeedServerUserName(site.Namespace, server),
		InboxPrefix: inbox,
		Publish: append(harmless(),
			wire.GapSubjects(code), wire.LiveSubjects(code, "*"), "$KV."+wire.RequestBucket(code)+"."+wire.SamplingRequestKey("*", "*", "*"),
			"$KV."+lease+".>", "$KV."+wire.DownloadsBucket(code)+".>", "$KV."+wire.CursorBucket(code)+"."+wire.DeliveryCursorKeys, "$KV."+wire.CursorBucket(code)+"."+wire.FilledCursorKeys,
			"$KV."+status+"."+wire.ConsumerStatusKey("*", "*"), "$KV."+status+"."+wire.FeedServerStatusKey("*"), "$KV."+status+"."+wire.DamageKeys,
			// The ledger entries that readers confirm who pull.
			"$KV."+wire.LedgerBucket(code)+"."+wire.LedgerKey("*", "*", wire.StepPulled, "*"), "$KV."+status+"."+wire.PullerStatusKey("*"),
			// Tickets, positions and the newest notice are asked of the leader: another replica may not have them yet.
			"$JS.API.DIRECT.GET.>", "$JS.API.STREAM.MSG.GET.KV_"+lease, "$JS.API.STREAM.MSG.GET.KV_"+wire.CursorBucket(code), "$JS.API.STREAM.MSG.GET."+wire.NoticeStream(code)),
		Subscribe: []string{inbox + ".>"},
	}
	u.Publish = append(u.Publish, consumersOfAll()...)
	ledger, names := "KV_"+wire.LedgerBucket(code), "KV_"+wire.NamesBucket(code)
	for _, hidden := range []string{ledger, names} {
		u.DenyPublish = append(u.DenyPublish, "$JS.API.CONSUMER.*."+hidden+".>", "$JS.API.CONSUMER.MSG.NEXT."+hidden+".>", "$JS.API.DIRECT.GET."+hidden)
	}
	u.DenyPublish = append(u.DenyPublish, "$JS.API.DIRECT.GET."+ledger+".>")
	return u
}

// ConsumerUser is the user of a FeedConsumer of delivery NATS: it requests the messages of its own durables, which have a name, looks at
// them, and acknowledges. It may do nothing else, not even read the account's limits or a stream's configuration. It is of the account of
// consumers, which imports just that: in the account of the streams it could have the server answer any request of JetStream's API.
func ConsumerUser(site *v1alpha1.Site, feed *v1alpha1.Feed, c *v1alpha1.FeedConsumer, v accept.ConsumerVerdict, name string) JetStreamUser {
	inbox := ConsumerInbox(site, name)
	u := JetStreamUser{
		Name:        ConsumerUserName(c),
		InboxPrefix: inbox,
		ClientOnly:  true,
		Publish:     []string{},
		Subscribe:   []string{inbox + ".>"},
	}
	for _, stream := range consumerStreams(site, feed, c, v) {
		durable := stream + "." + name
		u.Publish = append(u.Publish,
			wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+durable,
			wire.ConsumerAPI+".CONSUMER.INFO."+durable,
			acks(stream, name)[0], acks(stream, name)[1])
	}
	return u
}

// ConsumerInbox begins the inboxes of the FeedConsumer that has a durable: earlier
// credentials listen elsewhere. No pool has the name: an underscore is in none.
func ConsumerInbox(site *v1alpha1.Site, durable string) string {
	return "_INBOX_" + site.Spec.Code + "_" + durable
}

// surgeLevelKey is where the level of space weather is kept, which the operator alone says.
func surgeLevelKey(code string) string {
	return "$KV." + wire.StatusBucket(code) + "." + wire.SurgeStatusKey
}

// harmless are requests about the account and the configuration of streams,
// and answers to flow control.
func harmless() []string {
	return []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.FC.>"}
}

// consumersOfAll are the requests that create, inspect, read and delete consumers of any stream. A user who may create one may have
// messages delivered to any subject, past all permissions: docs/explanation/security.md states the consequences.
func consumersOfAll() []string {
	return []string{"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.DELETE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*"}
}

// acks are the subjects on which messages of a consumer of a stream are acknowledged: as servers name them, and with domain and account
// before the stream, as newer servers can be configured to (nats-server's feature js_ack_fc_v2). Each has as many tokens as the server's
// own subscription: with fewer tokens, one form would allow the other form of another consumer.
func acks(stream, consumer string) [2]string {
	return [2]string{"$JS.ACK." + stream + "." + consumer + ".*.*.*.*.*", "$JS.ACK.*.*." + stream + "." + consumer + ".*.*.*.*.>"}
}

// ownConsumers are the requests that make, look at and delete a stream's consumers: watching
// a key-value bucket makes one.
func ownConsumers(stream string) []string {
	return []string{"$JS.API.CONSUMER.CREATE." + stream + ".>", "$JS.API.CONSUMER.INFO." + stream + ".*", "$JS.API.CONSUMER.DELETE." + stream + ".*"}
}

// Hash distinguishes two users' permissions, so that credentials are reissued only if the permissions changed. Account and issuer are the
// public keys that the credentials are made with.
func (u JetStreamUser) Hash(account, issuer string) string {
	all := [][]string{{u.Name, u.InboxPrefix, account, issuer}, u.Publish, u.Subscribe}
	if len(u.DenyPublish) > 0 {
		all = append(all, u.DenyPublish)
	}
	h := sha256.New()
	for _, list := range all {
		h.Write([]byte(strings.Join(list, "\n") + "\n\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
