// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

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

	// HeaderMessageID is JetStream's own; it always equals ce-id.
	HeaderMessageID = "Nats-Msg-Id"
)

// Values of ce-type.
const (
	TypeNotice    = "dev.substorm.notice.v1"
	TypeTelemetry = "dev.substorm.telemetry.v1"
	TypeCondition = "dev.substorm.condition.v1"
)

// Content types of payloads.
const (
	ContentTypeJSON     = "application/json"
	ContentTypeProtobuf = "application/x-protobuf"
)

// SpecVersion is the version of CloudEvents in HeaderSpecVersion.
const SpecVersion = "1.0"

// EventSource is the ce-source of what a gateway publishes.
func EventSource(site, gateway string) string { return "/substorm/" + site + "/" + gateway }

// FormatTime writes a time as RFC 3339 in UTC with nanoseconds.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
