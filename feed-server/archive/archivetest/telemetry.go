// SPDX-License-Identifier: Apache-2.0

package archivetest

import (
	"net/netip"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Pool is the pool of the gateway whose reports Report writes.
const Pool = "north"

// Report says, as a gateway of Pool does, when it last received something of an instrument.
func (l *Lab) Report(instrument string, last time.Time) {
	l.Helper()
	status, err := l.JetStream.KeyValue(l.Context(), wire.StatusBucket(Site))
	l.ok(err)
	l.report(status, wire.GatewayStatusKey("gateway-0"), wire.GatewayStatus{Gateway: "gateway-0", Pool: Pool, ReportedAt: time.Now().UTC()})
	l.report(status, wire.InstrumentStatusKey(instrument, "gateway-0"), wire.InstrumentStatus{ReportedAt: time.Now().UTC(), LastReceived: last.UTC()})
}

// Level says, as the operator does, at which level of space weather the Site is; nil: it declares none any more.
func (l *Lab) Level(is *wire.SurgeLevel) {
	l.Helper()
	status, err := l.JetStream.KeyValue(l.Context(), wire.StatusBucket(Site))
	l.ok(err)
	if is == nil {
		l.ok(status.Delete(l.Context(), wire.SurgeStatusKey))
		return
	}
	l.report(status, wire.SurgeStatusKey, is)
}

func (l *Lab) report(status jetstream.KeyValue, key string, is any) {
	l.Helper()
	value, err := wire.Encode(is)
	l.ok(err)
	_, err = status.Put(l.Context(), key, value)
	l.ok(err)
}

// Datagram publishes a datagram of an instrument that was received at a time.
func (l *Lab) Datagram(instrument, channel, payload string, receivedAt time.Time) {
	l.Helper()
	message := wire.AppendTelemetryHeader(nil, instrument, channel)
	message = wire.AppendDatagram(message, wire.Datagram{ReceivedAt: receivedAt, Source: netip.MustParseAddrPort("192.0.2.7:40000"), Payload: []byte(payload)})
	_, err := l.JetStream.Publish(l.Context(), wire.ObservationSubject(Site, instrument, channel), message)
	l.ok(err)
}
