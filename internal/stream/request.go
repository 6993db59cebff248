// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/wire"
)

// RequestMessage is a request to the archivist as it is published, by writer.
func RequestMessage(q wire.ArchiveRequest, writer string) (*nats.Msg, error) {
	data, err := wire.Encode(q)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(wire.RequestSubject(q.Site, q.Instrument))
	m.Data = data
	for name, value := range map[string]string{
		wire.HeaderID: q.MessageID(), wire.HeaderMessageID: q.MessageID(), wire.HeaderSpecVersion: wire.SpecVersion,
		wire.HeaderType: wire.TypeRequest, wire.HeaderSource: wire.EventSource(q.Site, writer),
		wire.HeaderTime: wire.FormatTime(time.Now()), wire.HeaderContentType: wire.ContentTypeJSON, wire.HeaderFormat: strconv.Itoa(wire.Format),
	} {
		m.Header.Set(name, value)
	}
	return m, nil
}
