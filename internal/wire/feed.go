// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
	"time"
)

const (
	registryFeed     = "feed."
	registryConsumer = "consumer."
	registryReader   = "reader."
	registryClosed   = "closed."
)

// RegistryFeedKey is the key of a Feed's entry.
func RegistryFeedKey(feed string) string { return registryFeed + feed }

// RegistryConsumerKey is the key of a FeedConsumer's entry.
func RegistryConsumerKey(consumer string) string { return registryConsumer + consumer }

// RegistryReaderKey is the key of a named reader's entry.
func RegistryReaderKey(reader string) string { return registryReader + reader }

// ParseRegistryFeedKey returns the Feed that a key names, and false for other keys.
func ParseRegistryFeedKey(key string) (string, bool) { return named(key, registryFeed) }

// ParseRegistryConsumerKey returns the FeedConsumer that a key names, and false
// for other keys.
func ParseRegistryConsumerKey(key string) (string, bool) { return named(key, registryConsumer) }

// ParseRegistryReaderKey returns the reader that a key names, and false for other
// keys.
func ParseRegistryReaderKey(key string) (string, bool) { return named(key, registryReader) }

// RegistryClosedKey is the key of the ClosedEntry of an instrument.
func RegistryClosedKey(instrument string) string { return registryClosed + instrument }

// ParseRegistryClosedKey returns the instrument that a key names, and false for other
// keys.
func ParseRegistryClosedKey(key string) (string, bool) { return named(key, registryClosed) }

func named(key, prefix string) (string, bool) {
	name, ok := strings.CutPrefix(key, prefix)
	return name, ok && name != ""
}

// FeedEntry is a Feed as feed-server knows it: its selector resolved.
type FeedEntry struct {
	// UID and Generation of the Feed that the entry was made from.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Revision of the registry in which the entry last changed.
	Revision int64 `json:"revision"`

	Feed string `json:"feed"`
	// Notices and Telemetry are the streams that the Feed's messages of each kind
	// lie in; empty: it does not carry them. They are one stream where the Feed has
	// its own.
	Notices   string `json:"notices,omitempty"`
	Telemetry string `json:"telemetry,omitempty"`
	// Instruments that are selected, by name and in order; see AllInstruments, LeafInstruments.
	Instruments []string `json:"instruments"`
	// Channels of telemetry; empty: all.
	Channels []string `json:"channels,omitempty"`
	// Backfill: it carries notices of backfill, too.
	Backfill bool `json:"backfill,omitempty"`
	// Live narrows who may read what the instruments allow: AccessPublic, which
	// narrows nothing, and so on. Empty: as the instruments say.
	Live string `json:"live,omitempty"`
}

// Values of FlowEntry and ConsumerEntry, spelled as in the FeedConsumer.
const (
	FlowAll                  = "All"
	FlowLatest               = "Latest"
	FlowSample               = "Sample"
	PriorityNormal           = "Normal"
	PriorityUrgent           = "Urgent"
	DeliveryNATS             = "NATS"
	DeliveryWebSocket        = "WebSocket"
	DeliveryServerSentEvents = "ServerSentEvents"
)

// FlowEntry is a consumer's flow control. Zero members bound nothing.
type FlowEntry struct {
	// Mode is FlowAll, FlowLatest or FlowSample.
	Mode           string `json:"mode"`
	IntervalMillis int64  `json:"intervalMillis,omitempty"`
	// MaxBytesPerSecond of each connection.
	MaxBytesPerSecond int64 `json:"maxBytesPerSecond,omitempty"`
	MaxLagMillis      int64 `json:"maxLagMillis,omitempty"`
	// Priority is PriorityUrgent, or empty for PriorityNormal.
	Priority string `json:"priority,omitempty"`
}

// ConsumerEntry is a FeedConsumer as feed-server knows it.
type ConsumerEntry struct {
	// UID and Generation of the FeedConsumer that the entry was made from.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Revision of the registry in which the entry last changed.
	Revision int64 `json:"revision"`

	Consumer string `json:"consumer"`
	Feed     string `json:"feed"`
	// Instruments, Channels and kinds of messages narrow what the Feed carries;
	// empty: they do not. Instruments of one that selects nothing are NothingSelected.
	Instruments []string `json:"instruments,omitempty"`
	Channels    []string `json:"channels,omitempty"`
	NoNotices   bool     `json:"noNotices,omitempty"`
	NoTelemetry bool     `json:"noTelemetry,omitempty"`

	Flow FlowEntry `json:"flow"`
	// Delivery is DeliveryNATS, DeliveryWebSocket or DeliveryServerSentEvents.
	Delivery string `json:"delivery"`
	// MaxConnections at each replica.
	MaxConnections int `json:"maxConnections,omitempty"`
	// Tokens: the consumer presents one of them; see NoToken.
	Tokens []TokenHash `json:"tokens,omitempty"`
	// Durable is the name of its durables, with DeliveryNATS; empty: see DurableName.
	Durable string `json:"durable,omitempty"`
	// WIS2: it is given WIS2 notifications in place of notices, with DeliveryNATS, in a
	// stream of its own.
	WIS2 bool `json:"wis2,omitempty"`
}

// Filled says whether a feed server fills a stream of the consumer's own.
func (e ConsumerEntry) Filled() bool {
	return e.Delivery == DeliveryNATS && (e.WIS2 || e.Flow.Mode != FlowAll)
}

// DurableName is the name of the consumer's durables.
func (e ConsumerEntry) DurableName() string {
	if e.Durable == "" {
		return ConsumerDurable(e.Consumer, "")
	}
	return e.Durable
}

// ReaderEntry is a named reader of a Site that belongs to no FeedConsumer.
type ReaderEntry struct {
	Revision int64 `json:"revision"`

	Reader string      `json:"reader"`
	Tokens []TokenHash `json:"tokens"`
	// CertificateNames: the reader's certificate bears one of them, as a DNS name or URI among its subject alternative names, or as the
	// common name of its subject.
	CertificateNames []string `json:"certificateNames,omitempty"`
	// Pulls: the reader is another Site, or a mirror, that pulls; nil: what is due to expire does not wait for the reader.
	Pulls *PullsEntry `json:"pulls,omitempty"`
}

// PullsEntry says what a reader pulls, and how long what is due to expire waits for that.
type PullsEntry struct {
	// Instruments by name and in order; none: all of the Site that the reader may read.
	Instruments []string `json:"instruments,omitempty"`
	HoldMillis  int64    `json:"holdMillis"`
}

// Hold is how long what is due to expire waits for the reader.
func (e *PullsEntry) Hold() time.Duration { return time.Duration(e.HoldMillis) * time.Millisecond }

// PullsOf says whether the reader pulls an instrument, if it may read it.
func (e *ReaderEntry) PullsOf(instrument string) bool {
	return e.Pulls != nil && !IsGuest(instrument) && (len(e.Pulls.Instruments) == 0 || slices.Contains(e.Pulls.Instruments, instrument))
}

// Values of AccessEntry, spelled as in the Instrument.
const (
	// AccessPublic: every reader, anonymous ones included.
	AccessPublic = "Public"
	// AccessAuthenticated: every reader of the Site.
	AccessAuthenticated = "Authenticated"
	// AccessRestricted: the readers that are named.
	AccessRestricted = "Restricted"
)

// AccessEntry says who may read an instrument's data.
type AccessEntry struct {
	// Live and Archive are AccessPublic, AccessAuthenticated or AccessRestricted.
	Live    string `json:"live"`
	Archive string `json:"archive"`
	// EmbargoMillis is how long after its observation the archive keeps data to
	// the readers that are named.
	EmbargoMillis int64 `json:"embargoMillis,omitempty"`
	// Readers and consumers that may read where access is restricted or data under
	// embargo.
	Readers []string `json:"readers,omitempty"`
}

// Closed says whether some consumer that selects the instrument may not have its live data.
func (a *AccessEntry) Closed() bool {
	current := a.InForce()
	return current.EmbargoMillis > 0 || current.Live != AccessPublic && current.Live != AccessAuthenticated
}

// ClosedEntry remembers who might read an instrument that left the registry and was closed
// to some: messages of it may lie in the streams, or still come from a spool. It goes when
// an instrument of that name is in the registry again. RegistryComplete does not count it.
type ClosedEntry struct {
	// Revision of the registry in which the instrument left it.
	Revision int64 `json:"revision"`

	Instrument string      `json:"instrument"`
	Access     AccessEntry `json:"access"`
}

// InForce is what holds of an instrument that declares a, or nothing where a is nil:
// then every reader of the Site may read.
func (a *AccessEntry) InForce() AccessEntry {
	if a == nil {
		return AccessEntry{Live: AccessAuthenticated, Archive: AccessAuthenticated}
	}
	return *a
}

// Embargo is EmbargoMillis; none of nil.
func (a *AccessEntry) Embargo() time.Duration {
	return time.Duration(a.InForce().EmbargoMillis) * time.Millisecond
}

// FeedServerStatusKey is where a pod of feed-server reports about itself.
func FeedServerStatusKey(pod string) string { return "feedserver." + pod }

// ParseFeedServerStatusKey reads what FeedServerStatusKey wrote, and returns false
// for other keys.
func ParseFeedServerStatusKey(key string) (pod string, ok bool) {
	pod, ok = named(key, FeedServerStatusKey(""))
	return pod, ok && !strings.Contains(pod, ".")
}

// ConsumerStatusKey is where a pod of feed-server reports about a consumer.
func ConsumerStatusKey(consumer, pod string) string { return "consumer." + consumer + "." + pod }

// ParseConsumerStatusKey reads what ConsumerStatusKey wrote, and returns false for
// other keys.
func ParseConsumerStatusKey(key string) (consumer, pod string, ok bool) {
	p := strings.Split(key, ".")
	if len(p) != 3 || p[0] != "consumer" || p[1] == "" || p[2] == "" {
		return "", "", false
	}
	return p[1], p[2], true
}

// FeedServerStatus is what a pod of feed-server reports every
// LoadReportInterval.
type FeedServerStatus struct {
	Pod string `json:"pod"`
	// FeedServer that the pod belongs to; empty outside Kubernetes.
	FeedServer  string    `json:"feedServer,omitempty"`
	Incarnation string    `json:"incarnation"`
	StartedAt   time.Time `json:"startedAt"`
	ReportedAt  time.Time `json:"reportedAt"`
	// Revision of the registry that the pod runs; 0 before the first.
	Revision int64 `json:"revision"`
	// Connections of consumers that are open, and event streams of the archive.
	Connections  int `json:"connections"`
	EventStreams int `json:"eventStreams,omitempty"`
	// BytesPerSecond of content that consumers and readers were sent, on the average of the
	// last minute.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	Draining       bool  `json:"draining,omitempty"`
	// GivingWay is set while the pod answers some of its clients 503, because others go first.
	GivingWay *GivingWay `json:"givingWay,omitempty"`
	// Load of the pod; nil in its first report, and in those of before pods reported it.
	Load *Load `json:"load,omitempty"`
	// Problems are what keeps a consumer from being served, by consumer.
	Problems map[string]string `json:"problems,omitempty"`
}

// GivingWay says who gives way to others at a feed server one of whose budgets is full: robots to bulk readers, and these to people.
type GivingWay struct {
	// Cause is the budget: CPU or Requests.
	Cause string `json:"cause"`
	// Robots and Bulk are how many percent of the requests of each are let in.
	Robots int `json:"robots"`
	Bulk   int `json:"bulk"`
}

// The states of a consumer. FeedConsumer's documentation has the thresholds.
const (
	StateFlowing = "Flowing"
	StateSlow    = "Slow"
	StateOverrun = "Overrun"
	StateIdle    = "Idle"
)

// ConsumerStatus is what a pod of feed-server reports about a consumer when it
// changed, at most every GatewayReportInterval. For delivery NATS the pod that
// holds the consumer's lease reports. Counts are since the incarnation began.
type ConsumerStatus struct {
	Incarnation string    `json:"incarnation"`
	ReportedAt  time.Time `json:"reportedAt"`
	// State as this pod measured it.
	State string `json:"state"`
	// Connections that are open.
	Connections int `json:"connections"`
	// Lag of the connection that is furthest behind. LagBytes is nil if the size of all these messages is unknown.
	LagMessages int64  `json:"lagMessages"`
	LagBytes    *int64 `json:"lagBytes,omitempty"`
	LagMillis   int64  `json:"lagMillis"`
	// Messages and Bytes that were handed over. Bytes are nil with delivery NATS and
	// mode All: the consumer takes its messages from JetStream, which counts no bytes.
	Messages uint64  `json:"messages"`
	Bytes    *uint64 `json:"bytes,omitempty"`
	// Dropped by reason: Replaced and Sampled count datagrams and notices, the
	// reasons of gaps messages.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
	// Gaps is how many gap records were sent.
	Gaps uint64 `json:"gaps"`
	// LastGap is when the last of them was.
	LastGap *time.Time `json:"lastGap,omitempty"`
	// Token of what was given last, if there is one connection.
	Token string `json:"token,omitempty"`
	// AchievedMillis is the mean interval between samples, mode Sample.
	AchievedMillis int64 `json:"achievedMillis,omitempty"`
}
