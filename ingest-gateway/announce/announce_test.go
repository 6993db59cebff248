// SPDX-License-Identifier: Apache-2.0

package announce_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site    = "test"
	gateway = "pool-0"
)

type bench struct {
	server    *testenv.NATSServer
	js        jetstream.JetStream
	announcer *announce.Announcer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{server: testenv.NATS(t, testenv.NATSOptions{Unsynced: true})}
	b.js = b.server.JetStream(t)
	testenv.CreateSite(t, b.js, site)
	nc, err := stream.Connect(t.Context(), stream.Config{Servers: []string{b.server.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	commit := func(name string) *stream.Committer {
		c, err := stream.NewCommitter(nc, stream.CommitterConfig{Stream: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = c.Close(ctx)
		})
		return c
	}
	b.announcer = announce.New(announce.Config{
		Site: site, Gateway: gateway, Incarnation: "one",
		Notices: commit(wire.NoticeStream(site)), Observations: commit(wire.ObservationStream(site)),
	})
	return b
}

// only returns the one message of a stream.
func (b *bench) only(t *testing.T, name string) *jetstream.RawStreamMsg {
	t.Helper()
	s, err := b.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Fatalf("%s holds %d messages, want 1", name, n)
	}
	msg, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} { // by the answer
		msg.Header.Del(added)
	}
	return msg
}

func notice() wire.Notice {
	at := time.Date(2026, 11, 21, 1, 2, 3, 456_789_000, time.UTC)
	digest := wire.Digest(sha256.Sum256([]byte("x")))
	key := wire.RawKey(site, "camera", at, digest)
	return wire.Notice{Site: site, Instrument: "camera", Record: wire.Record{
		ID: key, Key: key, Size: 1, Digest: digest, State: wire.StateCurrent, ReceivedAt: at,
		TimeSource: wire.TimeSourceReceived, Gateway: gateway, Incarnation: "one",
	}}
}

func TestNotice(t *testing.T) {
	b := newBench(t)
	n := notice()
	for range 2 { // announced again, it is there once
		settled := errors.New("not called")
		if err := b.announcer.Notice(t.Context(), n, func(err error) { settled = err }); err != nil || settled != nil {
			t.Fatalf("%v, settled with %v", err, settled)
		}
	}
	msg := b.only(t, wire.NoticeStream(site))
	got, err := wire.Decode[wire.Notice](msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, got); diff != "" {
		t.Errorf("notice (-want +got):\n%s", diff)
	}
	want := nats.Header{
		"Nats-Msg-Id": {n.Key}, "ce-id": {n.Key}, "ce-specversion": {"1.0"}, "ce-type": {wire.TypeNotice},
		"ce-source": {"/substorm/test/pool-0"}, "ce-subject": {n.Key}, "ce-time": {"2026-11-21T01:02:03.456789Z"},
		"content-type": {wire.ContentTypeJSON}, "substorm-format": {"1"},
	}
	if diff := cmp.Diff(want, msg.Header); diff != "" || msg.Subject != "notice.test.camera" {
		t.Errorf("subject %s, headers (-want +got):\n%s", msg.Subject, diff)
	}
}

func TestTelemetry(t *testing.T) {
	b := newBench(t)
	at := time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)
	settled := make(chan error)
	message := announce.Telemetry{
		Instrument: "magnetometer", Channel: "raw", At: at, Payload: []byte("payload"), Datagrams: 3, DatagramBytes: 12,
	}
	if err := b.announcer.Telemetry(t.Context(), message, func(err error) { settled <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	msg := b.only(t, wire.ObservationStream(site))
	want := nats.Header{
		"Nats-Msg-Id": {"pool-0/one/1"}, "ce-id": {"pool-0/one/1"}, "ce-specversion": {"1.0"}, "ce-type": {wire.TypeTelemetry},
		"ce-source": {"/substorm/test/pool-0"}, "ce-subject": {"magnetometer"}, "ce-time": {"2026-11-21T23:59:59Z"},
		"content-type": {wire.ContentTypeProtobuf}, "substorm-format": {"1"}, "substorm-datagrams": {"3"}, "substorm-datagram-bytes": {"12"},
	}
	if diff := cmp.Diff(want, msg.Header); diff != "" || msg.Subject != "obs.test.magnetometer.raw" || string(msg.Data) != "payload" {
		t.Errorf("subject %s, payload %q, headers (-want +got):\n%s", msg.Subject, msg.Data, diff)
	}
}

// TestImpatient: a caller that does not wait learns later what became of the notice.
func TestImpatient(t *testing.T) {
	b := newBench(t)
	b.server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	settled := make(chan error, 2)
	err := b.announcer.Notice(ctx, notice(), func(err error) { settled <- err })
	if !errors.Is(err, stream.ErrUnavailable) || stream.CauseOf(err) != wire.CauseStreamUnavailable || len(settled) != 0 {
		t.Fatalf("%v, settled %d times", err, len(settled))
	}
	b.server.Start()
	if err := <-settled; err != nil {
		t.Error(err)
	}
	b.only(t, wire.NoticeStream(site))
}
