// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// sender sends numbered datagrams, and objects under names until each has its receipt.
type bucketSender struct {
	*lab
	t         *testing.T
	conn      net.Conn
	port      int
	datagrams uint64
	objects   map[string]wire.Digest // by name
}

func (s *bucketSender) send(datagrams, objects int) {
	s.t.Helper()
	for range datagrams {
		if _, err := s.conn.Write(binary.BigEndian.AppendUint64(nil, s.datagrams)); err != nil {
			s.t.Fatal(err)
		}
		s.datagrams++
	}
	for range objects {
		name := fmt.Sprintf("frame-%d", len(s.objects))
		object := random(uint64(1000+len(s.objects)), 100_000)
		await(s.t, "the receipt of "+name, func() (bool, string) {
			r := put(in(s.port, "camera", name), object)
			return r.err == nil && (r.status == http.StatusCreated || r.status == http.StatusOK), fmt.Sprint(r.status, r.err)
		})
		s.objects[name] = sha256.Sum256(object)
	}
}

// listed returns how often the manifests list each name, with its digest, and how often
// the listed segments hold each datagram.
func (s *bucketSender) listed() (names map[string]int, datagrams map[uint64]int) {
	s.t.Helper()
	names, datagrams = map[string]int{}, map[uint64]int{}
	for _, instrument := range []string{"camera", "mag"} {
		for day, err := range manifest.Days(s.t.Context(), s.store, s.site, instrument) {
			if err != nil {
				s.t.Fatal(err)
			}
			for r, err := range manifest.Day(s.t.Context(), s.store, s.site, instrument, day) {
				if err != nil {
					s.t.Fatal(err)
				}
				if r.Segment == nil {
					names[r.Name+" "+r.Digest.String()]++
					continue
				}
				s.count(r.Key, datagrams)
			}
		}
	}
	return names, datagrams
}

func (s *bucketSender) count(key string, datagrams map[uint64]int) {
	s.t.Helper()
	body, _, err := s.store.Get(s.t.Context(), key, objectstore.All)
	if err != nil {
		s.t.Fatal(err)
	}
	defer body.Close()
	err = decode.Datagrams(body, func(payload []byte, _ time.Time) error {
		datagrams[binary.BigEndian.Uint64(payload)]++
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// check waits until all that was sent is listed, and fails where anything is twice.
func (s *bucketSender) check(lost string) {
	s.t.Helper()
	await(s.t, "all is listed after the loss of "+lost, func() (bool, string) {
		names, datagrams := s.listed()
		missing := 0
		for name, digest := range s.objects {
			if names[name+" "+digest.String()] == 0 {
				missing++
			}
		}
		return missing == 0 && uint64(len(datagrams)) == s.datagrams,
			fmt.Sprintf("%d of %d objects are not listed, %d of %d datagrams are", missing, len(s.objects), len(datagrams), s.datagrams)
	})
	names, datagrams := s.listed()
	if len(names) != len(s.objects) {
		s.t.Errorf("after the loss of %s %d objects are listed, %d were sent", lost, len(names), len(s.objects))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] != 1 {
			s.t.Errorf("after the loss of %s %s is listed %d times", lost, name, names[name])
		}
	}
	for number, times := range datagrams {
		if times != 1 {
			s.t.Errorf("after the loss of %s datagram %d is in segments %d times", lost, number, times)
		}
	}
}

// Whichever key-value bucket is lost under load, and made anew as the operator does: what
// was sent before, meanwhile and after is listed once.
func TestBucketsAreLost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	udpPort, httpPort := parts.FreePort(t), parts.FreePort(t)
	mag, camera := tcpInstrument("mag", udpPort), httpInstrument("camera", httpPort)
	mag.Ways = []wire.WayEntry{{Protocol: wire.ProtocolUDP, Port: uint16(udpPort), Channel: "raw"}}
	mag.SegmentAgeMillis = 300
	g := l.start(t, gatewayOptions{flags: []string{"--part-interval", "500ms"}})
	l.awaitRevision(t, g.name, l.declare(t, mag, camera))
	awaitListening(t, httpPort)
	conn, err := net.Dial("udp", loopback(udpPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := &bucketSender{lab: l, t: t, conn: conn, port: httpPort, objects: map[string]wire.Digest{}}
	s.send(20, 2)
	s.check("nothing")
	for _, bucket := range []string{wire.CursorBucket(l.site), wire.LedgerBucket(l.site), wire.StatusBucket(l.site), wire.NamesBucket(l.site),
		wire.IndexBucket(l.site), wire.GapsBucket(l.site), wire.DescriptionBucket(l.site), wire.DownloadsBucket(l.site),
		wire.LeaseBucket(l.site), wire.RequestBucket(l.site), wire.RegistryBucket(l.site)} {
		s.send(10, 1)
		if err := l.js.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
		s.send(10, 0)
		parts.CreateSite(t, l.js, l.site)
		if bucket == wire.RegistryBucket(l.site) {
			l.declare(t, mag, camera)
		}
		s.send(10, 1)
		s.check(bucket)
	}
	l.awaitLedger(t, "mag", wire.StepReceived, func(r wire.Totals) bool {
		return r.Datagrams == s.datagrams && l.ledger(t, "mag", wire.StepStored).Datagrams == s.datagrams &&
			l.ledger(t, "mag", wire.StepAnnounced).Datagrams == s.datagrams
	})
}
