// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// TestStreamsTakeWhatLeavesSent: with the keys of the quickstart a stream of SUBSTORM sources one of LEAVES.
func TestStreamsTakeWhatLeavesSent(t *testing.T) {
	v := complete(t)
	url := startNATS(t, v)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	account := func(secret string) jetstream.JetStream {
		t.Helper()
		data := v.data(t, secret)
		nc, err := nats.Connect(url, clientTLS(t, v, true), userOf(t, string(data[keyAccountID]), string(data[keyAccountSeed])))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	leaves, substorm := account("substorm-nats-leaves"), account("substorm-nats-account")
	copies := wire.CopiedObservationStream("hub", "north")
	if _, err := leaves.CreateStream(ctx, jetstream.StreamConfig{Name: copies, Subjects: []string{"obs.north.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := leaves.Publish(ctx, "obs.north.mag.raw", []byte("datagram")); err != nil {
		t.Fatal(err)
	}
	s, err := substorm.CreateStream(ctx, jetstream.StreamConfig{Name: "OBS_hub", Sources: []*jetstream.StreamSource{{Name: copies,
		External: &jetstream.ExternalStream{APIPrefix: wire.LeavesAPI, DeliverPrefix: wire.CopiedPrefix("hub", "north")}}}})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := reader.Next(jetstream.FetchMaxWait(30 * time.Second))
	if err != nil || string(m.Data()) != "datagram" || m.Subject() != "obs.north.mag.raw" {
		t.Errorf("the stream of SUBSTORM has %v, %v", m, err)
	}
}
