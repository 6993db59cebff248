// SPDX-License-Identifier: Apache-2.0

package leaf

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// sender is what an observatory has beside a gateway: a camera that sends a small
// frame ten times a second and waits for its receipt, sending again without, and
// a magnetometer that sends a numbered datagram fifty times a second. It keeps its
// own list of what it sent.
type sender struct {
	t      *testing.T
	camera int    // port
	mag    string // address

	stop chan struct{}
	both sync.WaitGroup
	// sent by digest, and how many datagrams; to be read after finish.
	objects   map[wire.Digest]bool
	datagrams uint64
}

func startSender(t *testing.T, cameraPort, magPort int) *sender {
	t.Helper()
	s := &sender{t: t, camera: cameraPort, mag: testenv.Loopback(magPort), stop: make(chan struct{}), objects: map[wire.Digest]bool{}}
	s.both.Go(s.sendObjects)
	s.both.Go(s.sendDatagrams)
	t.Cleanup(s.finish)
	return s
}

// finish stops sending; what has no receipt yet is sent to its end.
func (s *sender) finish() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.both.Wait()
}

func (s *sender) every(interval time.Duration, send func(n uint64)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := uint64(0); ; n++ {
		send(n)
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

func (s *sender) sendObjects() {
	s.every(100*time.Millisecond, func(n uint64) {
		object := fmt.Appendf(nil, "frame %d of %s\n", n, s.t.Name())
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // a camera sends again after a pause
			err := testenv.SendObject(s.camera, object)
			if err == nil {
				s.objects[sha256.Sum256(object)] = true
				return
			}
			if time.Now().After(deadline) {
				s.t.Errorf("no receipt for frame %d within %v: %v", n, patience, err)
				return
			}
		}
	})
}

func (s *sender) sendDatagrams() {
	conn, err := net.Dial("udp", s.mag)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	s.every(20*time.Millisecond, func(n uint64) {
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			s.t.Errorf("datagram %d: %v", n, err)
			return
		}
		s.datagrams = n + 1
	})
}

// compare fails where a stream's messages hold less or more than was sent. An
// object whose receipt was lost is sent again: the archive marks the second as a duplicate.
func (s *sender) compare(notices, telemetry func() []message) {
	s.t.Helper()
	s.finish()
	await(s.t, "each object is announced once", func() error { return s.compareObjects(notices()) })
	s.compareDatagrams(telemetry())
}

func (s *sender) compareObjects(notices []message) error {
	announced := map[string]wire.Digest{}
	for _, m := range notices {
		n, err := wire.Decode[wire.Notice](m.data)
		switch {
		case err != nil:
			s.t.Fatal(err)
		case n.Instrument != camera:
		case n.State == wire.StateCurrent:
			announced[n.ID] = n.Digest
		case n.State == wire.StateDuplicate:
			delete(announced, n.ID)
		}
	}
	times := map[wire.Digest]int{}
	for id, digest := range announced {
		if times[digest]++; !s.objects[digest] {
			return fmt.Errorf("%s was announced and got no receipt", id)
		}
	}
	for digest := range s.objects {
		if times[digest] != 1 {
			return fmt.Errorf("the object %s was announced %d times", digest, times[digest])
		}
	}
	return nil
}

func (s *sender) compareDatagrams(telemetry []message) {
	s.t.Helper()
	next := uint64(0)
	for _, m := range telemetry {
		for d, err := range wire.Datagrams(m.data) {
			if err != nil {
				s.t.Fatal(err)
			}
			if n := binary.BigEndian.Uint64(d.Payload); n != next {
				s.t.Fatalf("datagram %d came where %d was expected", n, next)
			}
			next++
		}
	}
	if next != s.datagrams {
		s.t.Errorf("%d datagrams came of %d", next, s.datagrams)
	}
}
