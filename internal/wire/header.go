// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Headers of every message on a Site's streams. The ce- headers are CloudEvents
// 1.0 in binary mode (NATS protocol binding).
const (
	HeaderID          = "ce-id"
	HeaderSpecVersion = "ce-specversion"
	HeaderType        = "ce-type"
	HeaderSource      = "ce-source"
	HeaderSubject     = "ce-subject"
	HeaderTime        = "ce-time"
	HeaderContentType = "content-type"
	// HeaderFormat is the format version of the payload.
	HeaderFormat = "substorm-format"
	// HeaderDatagrams is how many datagrams a telemetry message holds.
	HeaderDatagrams = "substorm-datagrams"
	// HeaderDatagramBytes is how many bytes their payloads hold.
	HeaderDatagramBytes = "substorm-datagram-bytes"

	// HeaderRefilled marks notices that were published again because their stream was recreated: RefilledAgain.
	HeaderRefilled = "substorm-refilled"

	// Headers of messages that feed-server puts into a ConsumerStream. Each message is one item: a notice, or one datagram.

	// HeaderToken is a FeedToken: all before that place was given, or is not to be.
	HeaderToken = "substorm-token"
	// HeaderReplaced is how many items of the same subject are not given since the
	// last message of that subject, because newer ones came before it was their turn.
	HeaderReplaced = "substorm-replaced"
	// HeaderSampled is how many are not given because the interval asks for one.
	HeaderSampled = "substorm-sampled"
	// HeaderCount is <incarnation>/<n>: the message is the n-th item of its subject that
	// came since a feed server began to fill the stream. Items that lie between two of one
	// incarnation were not given, for whatever reason.
	HeaderCount = "substorm-count"

	// HeaderMessageID is JetStream's own; it always equals ce-id.
	HeaderMessageID = "Nats-Msg-Id"
)

// Headers of requests and answers between the gateways of a pool, over HTTP.
const (
	// HeaderGateway names, in a request, the pod that is meant and, in the answer, the
	// one that answers.
	HeaderGateway = "Substorm-Gateway"
	// HeaderNode is the node that the pod which asks, or answers, runs on.
	HeaderNode = "Substorm-Node"
)

// Values of ce-type.
const (
	TypeNotice    = "dev.substorm.notice.v1"
	TypeTelemetry = "dev.substorm.telemetry.v1"
	TypeCondition = "dev.substorm.condition.v1"
	TypeSurge     = "dev.substorm.surge.v1"
	TypeWIS2      = "int.wmo.wis.wnm.v1"
	// TypeRequest and TypeDecision are those of ArchiveRequest and ArchiveDecision.
	TypeRequest  = "dev.substorm.request.v1"
	TypeDecision = "dev.substorm.decision.v1"
)

// Content types of payloads.
const (
	ContentTypeJSON     = "application/json"
	ContentTypeProtobuf = "application/x-protobuf"
	ContentTypeGeoJSON  = "application/geo+json"
)

// RefilledAgain is the value of HeaderRefilled.
const RefilledAgain = "1"

// SpecVersion is the version of CloudEvents in HeaderSpecVersion.
const SpecVersion = "1.0"

// EventSource is the ce-source of what a gateway publishes.
func EventSource(site, gateway string) string { return "/substorm/" + site + "/" + gateway }

// PublicationID is <gateway>/<incarnation>/<sequence>: the sequence counts what
// one incarnation of a gateway publishes, from 1.
func PublicationID(gateway, incarnation string, sequence uint64) string {
	return gateway + "/" + incarnation + "/" + strconv.FormatUint(sequence, 10)
}

// ParsePublicationID reads what PublicationID wrote. Errors: ErrMalformed.
func ParsePublicationID(id string) (gateway, incarnation string, sequence uint64, err error) {
	p := strings.Split(id, "/")
	if len(p) != 3 || slices.Contains(p, "") {
		return "", "", 0, fmt.Errorf("publication %q is not <gateway>/<incarnation>/<sequence>: %w", id, ErrMalformed)
	}
	if sequence, err = strconv.ParseUint(p[2], 10, 64); err != nil || p[2] != strconv.FormatUint(sequence, 10) {
		return "", "", 0, fmt.Errorf("publication %q: %w", id, ErrMalformed)
	}
	return p[0], p[1], sequence, nil
}

// FormatTime writes a time as RFC 3339 in UTC with nanoseconds.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
