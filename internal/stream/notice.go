// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/wire"
)

// NoticeMessage makes the message of a notice, a CloudEvent whose source is the
// gateway that publishes it.
func NoticeMessage(n wire.Notice, gateway string) (*nats.Msg, error) {
	data, err := wire.Encode(n)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(n.Subject())
	m.Data = data
	for name, value := range map[string]string{
		wire.HeaderID:          n.MessageID(),
		wire.HeaderMessageID:   n.MessageID(),
		wire.HeaderSpecVersion: wire.SpecVersion,
		wire.HeaderType:        wire.TypeNotice,
		wire.HeaderSource:      wire.EventSource(n.Site, gateway),
		wire.HeaderSubject:     n.Key,
		wire.HeaderTime:        wire.FormatTime(n.ReceivedAt),
		wire.HeaderContentType: wire.ContentTypeJSON,
		wire.HeaderFormat:      strconv.Itoa(wire.Format),
	} {
		m.Header.Set(name, value)
	}
	return m, nil
}
