// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// notice returns the notice of an object whose name and content are a number.
func (l *lab) notice(instrument string, number int) wire.Notice {
	at := time.Now().UTC()
	digest := wire.Digest(sha256.Sum256(fmt.Appendf(nil, "%05d", number)))
	key := wire.RawKey(site, instrument, at, digest)
	return wire.Notice{Site: site, Instrument: instrument, Record: wire.Record{
		ID: key, Key: key, Name: fmt.Sprint(number), Size: 5, Digest: digest, MediaType: "text/plain", State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Gateway: "gateway-0", Incarnation: "incarnation-1"}}
}

// announce publishes a notice whose name is a number, for as long as it takes.
func (l *lab) announce(instrument string, number int) {
	l.t.Helper()
	l.publishNotice(l.notice(instrument, number))
}

func (l *lab) publishNotice(n wire.Notice) {
	l.t.Helper()
	m, err := stream.NoticeMessage(n, "gateway-0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.publish(m)
}

// telemetry publishes a message of datagrams that are numbered from first.
func (l *lab) telemetry(instrument string, first, count int) {
	l.t.Helper()
	l.telemetryAt(instrument, first, count, time.Now().UTC().Add(-time.Duration(count)*time.Millisecond), time.Millisecond)
}

// telemetryAt is telemetry whose first datagram was received at a time, and each other
// a while after the one before.
func (l *lab) telemetryAt(instrument string, first, count int, at time.Time, each time.Duration) {
	l.t.Helper()
	data := wire.AppendTelemetryHeader(nil, instrument, channel)
	for i := range count {
		data = wire.AppendDatagram(data, wire.Datagram{ReceivedAt: at.Add(time.Duration(i) * each),
			Source: netip.MustParseAddrPort("192.0.2.7:40001"), Payload: []byte(fmt.Sprint(first + i))})
	}
	m := nats.NewMsg(wire.ObservationSubject(site, instrument, channel))
	m.Data = data
	id := fmt.Sprint("gateway-0/incarnation-1/", first)
	for name, value := range map[string]string{wire.HeaderID: id, wire.HeaderMessageID: id, wire.HeaderType: wire.TypeTelemetry,
		wire.HeaderSource: wire.EventSource(site, "gateway-0"), wire.HeaderTime: wire.FormatTime(at), wire.HeaderFormat: "1",
		wire.HeaderDatagrams: fmt.Sprint(count), wire.HeaderContentType: wire.ContentTypeProtobuf} {
		m.Header.Set(name, value)
	}
	l.publish(m)
}

func (l *lab) publish(m *nats.Msg) {
	l.t.Helper()
	var err error
	for range testenv.Attempts() { // NATS may be away meanwhile
		ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Second)
		_, err = l.js.PublishMsg(ctx, m)
		cancel()
		if err == nil || l.t.Context().Err() != nil {
			return
		}
	}
	l.t.Errorf("publish: %v", err)
}
