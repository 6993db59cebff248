// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	testStream  = "T"
	testSubject = "t.a"
)

func connect(t testing.TB, server *testenv.NATSServer) *nats.Conn {
	t.Helper()
	nc, err := Connect(t.Context(), Config{Servers: []string{server.URL()}, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func makeStream(t testing.TB, nc *nats.Conn, change func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{
		Name: testStream, Subjects: []string{"t.>"}, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, AllowAtomicPublish: true,
	}
	if change != nil {
		change(&cfg)
	}
	s, err := js.CreateOrUpdateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newCommitter(t testing.TB, nc *nats.Conn, change func(*CommitterConfig)) *Committer {
	t.Helper()
	cfg := CommitterConfig{Stream: testStream}
	if change != nil {
		change(&cfg)
	}
	c, err := NewCommitter(nc, cfg)
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

func message(id string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: testSubject, Data: data, Header: nats.Header{wire.HeaderMessageID: {id}}}
}

// idsIn returns how often each message id is in the stream.
func idsIn(t testing.TB, s jetstream.Stream) map[string]int {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatalf("message %d: %v", seq, err)
		}
		ids[msg.Header.Get(wire.HeaderMessageID)]++
	}
	return ids
}

func id(i int) string { return fmt.Sprintf("m-%06d", i) }
