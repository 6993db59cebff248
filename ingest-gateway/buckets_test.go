// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Between two objects, and between two datagrams, of one of bucketSender's workers.
const (
	bucketObjectInterval   = 50 * time.Millisecond
	bucketDatagramInterval = 10 * time.Millisecond
)

// bucketSender sends until it is stopped: objects with and without names, each until it
// has its receipt, and numbered datagrams.
type bucketSender struct {
	*lab
	t         *testing.T
	http, udp int
	stop      func()
	stopped   <-chan struct{}
	all       sync.WaitGroup

	datagrams, nameless atomic.Uint64
	mu                  sync.Mutex
	// receipts by name, "" without one, and digest.
	receipts map[listing]bool
	// segments that were read: the numbers of their datagrams, by key.
	segments map[string][]uint64
}

type listing struct {
	name   string
	digest wire.Digest
}

// start begins to send. If the test fails before end, the senders end with it.
func (s *bucketSender) start() {
	s.t.Cleanup(s.finish)
	s.all.Go(s.sendDatagrams)
	s.all.Go(func() {
		s.again(func(n int) bool {
			defer s.nameless.Add(1)
			return s.send("", objectFor("nameless", n))
		})
	})
	for _, worker := range []string{"a", "b"} {
		s.all.Go(func() {
			s.again(func(n int) bool {
				name := fmt.Sprintf("%s/%d", worker, n)
				return s.send(name, objectFor(name, n))
			})
		})
	}
}

func (s *bucketSender) finish() {
	s.stop()
	s.all.Wait()
}

// again sends object after object until one gets no receipt or the sender is stopped.
func (s *bucketSender) again(send func(n int) bool) {
	for n := 0; send(n); n++ {
		select {
		case <-s.stopped:
			return
		case <-time.After(bucketObjectInterval):
		}
	}
}

// objectFor goes into a pack, but for each fourth.
func objectFor(name string, n int) []byte {
	size := 3000
	if n%4 == 3 {
		size = 100_000
	}
	sum := sha256.Sum256(fmt.Append(nil, name, n))
	return random(binary.BigEndian.Uint64(sum[:]), size+n)
}

// send sends an object until it has its receipt, and notes that.
func (s *bucketSender) send(name string, object []byte) bool {
	method := http.MethodPut
	if name == "" {
		method = http.MethodPost
	}
	var r reply
	for range testenv.Attempts() {
		if s.t.Context().Err() != nil {
			break
		}
		r = ask(method, in(s.http, "camera", name), bytes.NewReader(object))
		switch {
		case r.err != nil || r.status == http.StatusServiceUnavailable:
			continue
		case (r.status == http.StatusCreated || r.status == http.StatusOK) && r.header.Get("Repr-Digest") == reprDigest(object):
			s.mu.Lock()
			s.receipts[listing{name, sha256.Sum256(object)}] = true
			s.mu.Unlock()
			return true
		}
		break
	}
	s.t.Errorf("object %q gets no receipt: %v", name, r)
	return false
}

// sendDatagrams sends a datagram after the other, each with its number.
func (s *bucketSender) sendDatagrams() {
	conn, err := net.Dial("udp", loopback(s.udp))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	for {
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, s.datagrams.Load())); err != nil {
			s.t.Errorf("send a datagram: %v", err)
			return
		}
		s.datagrams.Add(1)
		select {
		case <-s.stopped:
			return
		case <-time.After(bucketDatagramInterval):
		}
	}
}

// lose deletes a bucket, and has it recreated when objects and datagrams that were begun meanwhile
// have been sent.
func (s *bucketSender) lose(bucket string, makeAnew func()) {
	s.t.Helper()
	if err := s.js.DeleteKeyValue(s.t.Context(), bucket); err != nil {
		s.t.Fatal(err)
	}
	name := "meanwhile/" + bucket
	receipt := make(chan bool, 1)
	s.all.Go(func() { receipt <- s.send(name, objectFor(name, 0)) })
	nameless, datagrams := s.nameless.Load(), s.datagrams.Load()
	await(s.t, "objects without names are taken without "+bucket, func() (bool, string) {
		return s.nameless.Load() >= nameless+2 && s.datagrams.Load() >= datagrams+10, fmt.Sprint(s.nameless.Load() - nameless)
	})
	makeAnew()
	if !<-receipt {
		s.t.FailNow()
	}
}

// sent is what has been receipted so far.
func (s *bucketSender) sent() map[listing]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.receipts)
}

// records yields what the manifests list of an instrument.
func (s *bucketSender) records(instrument string) iter.Seq[wire.Record] {
	return func(yield func(wire.Record) bool) {
		s.t.Helper()
		for day, err := range manifest.Days(s.t.Context(), s.store, s.site, instrument) {
			if err != nil {
				s.t.Fatal(err)
			}
			for r, err := range manifest.Day(s.t.Context(), s.store, s.site, instrument, day) {
				if err != nil {
					s.t.Fatal(err)
				}
				if !yield(r) {
					return
				}
			}
		}
	}
}

// listed returns how often the manifests list each object, and how often the listed
// segments hold each datagram.
func (s *bucketSender) listed() (objects map[listing]int, datagrams map[uint64]int) {
	s.t.Helper()
	objects, datagrams = map[listing]int{}, map[uint64]int{}
	for r := range s.records("camera") {
		objects[listing{r.Name, r.Digest}]++
	}
	for r := range s.records("mag") {
		for _, number := range s.segment(r.Key) {
			datagrams[number]++
		}
	}
	return objects, datagrams
}

// segment returns the numbers of a segment's datagrams.
func (s *bucketSender) segment(key string) (numbers []uint64) {
	s.t.Helper()
	if numbers, read := s.segments[key]; read {
		return numbers
	}
	body, _, err := s.store.Get(s.t.Context(), key, objectstore.All)
	if err != nil {
		s.t.Fatal(err)
	}
	defer body.Close()
	err = decode.Datagrams(body, func(payload []byte, _ time.Time) error {
		numbers = append(numbers, binary.BigEndian.Uint64(payload))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.segments[key] = numbers
	return numbers
}

// check waits until each object that has a receipt, and each datagram that was sent, is
// listed once. Objects that are still on their way are not checked.
func (s *bucketSender) check(after string) {
	s.t.Helper()
	receipts, sent := s.sent(), s.datagrams.Load()
	await(s.t, "after the loss of "+after+" all is listed once", func() (bool, string) {
		objects, datagrams := s.listed()
		missing, twice := 0, 0
		for object := range receipts {
			if objects[object] == 0 {
				missing++
			}
		}
		for _, times := range objects {
			twice += times - 1
		}
		lost, doubled := 0, 0
		for number := range sent {
			if datagrams[number] == 0 {
				lost++
			}
		}
		for _, times := range datagrams {
			doubled += times - 1
		}
		return missing+twice+lost+doubled == 0, fmt.Sprintf("of %d objects %d are not listed, and %d too many; of %d datagrams %d are in no segment, and %d too many",
			len(receipts), missing, twice, sent, lost, doubled)
	})
}

// end stops the sender and waits until what it sent is listed once, and nothing else; and
// the ledger says so too.
func (s *bucketSender) end() {
	s.t.Helper()
	s.finish()
	s.check("all buckets")
	for r := range s.records("camera") {
		if !s.receipts[listing{r.Name, r.Digest}] {
			s.t.Errorf("%s %q is listed with %s, and has no receipt", r.Key, r.Name, r.Digest)
		}
		if digest, _ := s.digestOf(s.t, r); digest != r.Digest {
			s.t.Errorf("%s %q is listed with %s, and has the bytes of %s", r.Key, r.Name, r.Digest, digest)
		}
	}
	objects, datagrams := s.listed()
	sent := s.datagrams.Load()
	if uint64(len(datagrams)) != sent {
		s.t.Errorf("%d datagrams are in segments, %d were sent", len(datagrams), sent)
	}
	s.t.Logf("%d objects and %d datagrams are listed once", len(objects), len(datagrams))
	s.awaitLedger(s.t, "mag", wire.StepReceived, func(r wire.Totals) bool {
		return r.Datagrams == sent && s.ledger(s.t, "mag", wire.StepStored).Datagrams == sent
	})
	s.awaitLedger(s.t, "camera", wire.StepReceived, func(r wire.Totals) bool {
		announced, duplicates := s.ledger(s.t, "camera", wire.StepAnnounced), s.ledger(s.t, "camera", wire.StepDuplicates)
		return r.Objects == announced.Objects && r.Digest == announced.Digest && announced.Objects-duplicates.Objects == uint64(len(objects))
	})
}

// Any key-value bucket is lost under load, and recreated as the operator does: what was sent
// before, meanwhile and after is listed once.
func TestBucketsAreLost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	udpPort, httpPort := testenv.FreePort(t), testenv.FreePort(t)
	mag, camera := tcpInstrument("mag", udpPort), httpInstrument("camera", httpPort)
	mag.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(udpPort), Channel: "raw"}}
	mag.SegmentAgeMillis = 300
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, mag, camera))
	awaitListening(t, httpPort)
	running, stop := context.WithCancel(t.Context())
	s := &bucketSender{lab: l, t: t, http: httpPort, udp: udpPort, stop: stop, stopped: running.Done(),
		receipts: map[listing]bool{}, segments: map[string][]uint64{}}
	s.start()
	for _, bucket := range []string{wire.CursorBucket(l.site), wire.LedgerBucket(l.site), wire.StatusBucket(l.site), wire.NamesBucket(l.site),
		wire.IndexBucket(l.site), wire.GapsBucket(l.site), wire.DescriptionBucket(l.site), wire.DownloadsBucket(l.site),
		wire.LeaseBucket(l.site), wire.RequestBucket(l.site), wire.RegistryBucket(l.site)} {
		s.lose(bucket, func() {
			testenv.CreateSite(t, l.js, l.site)
			if bucket == wire.RegistryBucket(l.site) {
				l.declare(t, mag, camera)
			}
		})
		s.check(bucket)
	}
	s.end()
}
