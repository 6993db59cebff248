// SPDX-License-Identifier: Apache-2.0

//go:build linux

package natsserver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// observations makes the stream of telemetry as the operator does.
func observations(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: wire.ObservationStream("hub"), Subjects: []string{"obs.hub.>"}, AllowAtomicPublish: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// publishTogether publishes messages that come at once, and returns once all are acknowledged.
func publishTogether(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	c, err := stream.NewCommitter(js.Conn(), stream.CommitterConfig{Stream: wire.ObservationStream("hub")})
	if err != nil {
		t.Fatal(err)
	}
	var settled sync.WaitGroup
	// The first goes out alone, and the others together once it is settled.
	held := make(chan struct{})
	for i := range n {
		settled.Add(1)
		err := c.Submit(t.Context(), &nats.Msg{Subject: fmt.Sprintf("obs.hub.%d", i), Data: make([]byte, 100)}, func(_ stream.Ack, err error) {
			defer settled.Done()
			if i == 0 {
				<-held
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	close(held)
	settled.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestMessagesTogetherNeedOneSync: what comes at once is synced at once, however much it is, before and after the server was started
// again, and what is acknowledged outlives a power cut.
func TestMessagesTogetherNeedOneSync(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skip("batches are staged on the disk where no memory is to be had: ", err)
	}
	d := newDisk(t)
	s, js := d.start(t)
	observations(t, js)
	tend, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Tend(tend) }()
	defer func() { end(); <-ended }()
	link := filepath.Join(d.data, "streams", "jetstream", "*", "streams", wire.ObservationStream("hub"), "batches")
	var target string
	for range testenv.Attempts() {
		if at, _ := filepath.Glob(link); len(at) == 1 {
			target, _ = os.Readlink(at[0])
		}
		if target != "" {
			break
		}
	}
	if target == "" {
		t.Fatal("the server stages batches on the disk")
	}
	publishTogether(t, js, 2) // the file of the stream is new
	flushes := map[int]uint64{}
	for _, n := range []int{1, 3, 51} {
		before := d.flushes(t)
		publishTogether(t, js, n)
		flushes[n] = d.flushes(t) - before
	}
	if one := flushes[1]; one == 0 || flushes[3] > 2*one || flushes[51] > 2*one { // the first alone, and all others
		t.Errorf("1, 3 and 51 messages flush the disk %d, %d and %d times", one, flushes[3], flushes[51])
	}

	d.data = filepath.Join(testenv.CutPower(t, d.image), "nats")
	end()
	s.Stop()
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("after the server ended, memory still has %s: %v", target, err)
	}
	_, js = d.start(t)
	if is := observations(t, js).CachedInfo().State.Msgs; is != 2+1+3+51 {
		t.Errorf("%d messages outlive a power cut, of %d that were acknowledged", is, 2+1+3+51)
	}
	publishTogether(t, js, 30) // the link of before led nowhere
}
