// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
)

// behind is a cluster with a stream of three replicas; one of them is on a server that falls behind.
type behind struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	epoch  string
	last   uint64
	// subjects that are read: the messages are on the last of them.
	subjects []string
	// server has that replica, and node is it.
	server string
	node   *testenv.NATSServer
}

const behindMessages, behindSize = 3000, 32 << 10

func newBehind(t *testing.T) *behind {
	t.Helper()
	cluster := testenv.NATSCluster(t, testenv.NATSOptions{Unsynced: true})
	b := &behind{js: cluster.JetStream(t)}
	var err error
	b.stream, err = b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "R", Subjects: []string{"r.>"}, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	if b.epoch, _, err = stream.Epoch(t.Context(), b.js, "R"); err != nil {
		t.Fatal(err)
	}
	publish(t, b.js, "r.a", 1, 1)
	b.choose(t, cluster)
	return b
}

// choose takes the server that falls behind: one with a follower, and not that which we
// are connected to.
func (b *behind) choose(t *testing.T, cluster *testenv.NATSServers) {
	t.Helper()
	for _, replica := range b.info(t).Cluster.Replicas {
		if n := cluster.Named(replica.Name); n != cluster.NodeOf(b.js.Conn()) {
			b.server, b.node = replica.Name, n
		}
	}
}

// fall has the server miss much of what is published. When it returns the server is about
// to catch up.
func (b *behind) fall(t *testing.T) {
	t.Helper()
	b.node.Kill()
	payload := bytes.Repeat([]byte("x"), behindSize)
	for i := range behindMessages {
		m := nats.NewMsg([]string{"r.a", "r.b"}[i%2])
		m.Data = payload
		if _, err := b.js.PublishMsgAsync(m); err != nil {
			t.Fatal(err)
		}
	}
	<-b.js.PublishAsyncComplete()
	b.last = b.info(t).State.LastSeq
	b.node.Start()
}

func (b *behind) info(t *testing.T) *jetstream.StreamInfo {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		info, err := b.stream.Info(ctx)
		cancel()
		if err == nil {
			return info
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// lags says whether the replica is behind, as the stream's leader knows.
func (b *behind) lags(t *testing.T) bool {
	for _, replica := range b.info(t).Cluster.Replicas {
		if replica.Name == b.server {
			return !replica.Current || replica.Lag > 0
		}
	}
	return true
}

// A reader whose consumer the server placed on a node that is behind does not take that
// node's end for the stream's.
func TestReaderOnReplicaBehind(t *testing.T) {
	b := newBehind(t)
	const rounds = 6 // it may have caught up before it is given a consumer
	b.subjects = []string{"r.none", "r.b"}
	there := 0
	for round := 0; there == 0 && round < rounds; round++ {
		b.fall(t)
		for b.lags(t) && there < 20 {
			if b.read(t) {
				there++
			}
		}
	}
	if there == 0 {
		t.Fatal("no reader was placed on the server that is behind")
	}
	t.Logf("%d readers were placed on the server that is behind", there)
}

// read reads the last five messages of a subject with a new reader. It returns whether the reader's consumer was on the server that is
// behind, and no message came.
func (b *behind) read(t *testing.T) bool {
	t.Helper()
	first := b.last - 9
	r := stream.NewReader(b.js, stream.ReaderConfig{Stream: "R", Epoch: b.epoch, Subject: b.subjects[0], More: b.subjects[1:], Start: first})
	got, err := r.Next(t.Context(), 5, 100*time.Millisecond)
	if err != nil {
		return false
	}
	on := ""
	for c := range b.stream.ListConsumers(t.Context()).Info() {
		on = c.Cluster.Leader
		if err := b.stream.DeleteConsumer(t.Context(), c.Name); err != nil {
			t.Log(err)
		}
	}
	next, end := r.Position()
	if end && len(got) < 5 || next > b.last+1 || len(got) == 0 && next != first {
		t.Fatalf("a reader on %s (behind: %s): %d messages, next %d of %d, end %t", on, b.server, len(got), next, b.last, end)
	}
	return on == b.server && len(got) == 0
}
