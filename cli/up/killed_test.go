// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// telemetrySite has two Instruments that send datagrams: those of one gather, those of the other do not.
const telemetrySite = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: north}
spec:
  code: north
  objectStore: {endpoint: "https://s3.example", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: nats}}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: north}
spec: {siteRef: {name: north}, service: {type: ClusterIP}, ports: {first: %[1]d, last: %[2]d}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: north}
spec: {siteRef: {name: north}}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: gathered}
spec:
  siteRef: {name: north}
  type: Magnetometer
  acknowledge: StoredOrSpooled
  listeners: [{name: telemetry, protocol: UDP, port: %[1]d}]
  archive: {segment: {maxAge: 1s}}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: stored}
spec:
  siteRef: {name: north}
  type: Magnetometer
  acknowledge: Stored
  listeners: [{name: telemetry, protocol: UDP, port: %[2]d}]
  archive: {segment: {maxAge: 1s}}
`

// TestKillLosesOneBatch: a Site is killed when all datagrams of an Instrument whose acknowledge is Stored are in the stream, and those of another
// gather. After its next start the segments have all that were sent of the former, and of the latter all but, at most, the last ones: those that
// were sent after the last batch.
func TestKillLosesOneBatch(t *testing.T) {
	t.Parallel()
	manifests, port := t.TempDir(), testenv.FreePorts(t, 2)
	if err := os.WriteFile(filepath.Join(manifests, "site.yaml"), fmt.Appendf(nil, telemetrySite, port, port+1), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &leaf{Standalone: testenv.StartStandalone(t, manifests), t: t}
	stream, err := l.streams().Stream(t.Context(), wire.ObservationStream("north"))
	if err != nil {
		t.Fatal(err)
	}
	s := newNumberedSender(t, map[string]int{"gathered": port, "stored": port + 1})
	eventually(t, "datagrams of both Instruments arrive", func() error {
		s.write("hello")
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err == nil && len(info.State.Subjects) < 2 {
			err = fmt.Errorf("the stream has %v", info.State.Subjects)
		}
		return err
	})
	seen := s.killAmid(l, stream)
	t.Logf("of %d datagrams each, the stream had %d and %d when the Site was killed", s.sent, seen["gathered"], seen["stored"])

	l.Start()
	for instrument, least := range map[string]int{"gathered": seen["gathered"], "stored": s.sent} {
		eventually(t, fmt.Sprintf("segments have %d datagrams of %s", least, instrument), func() error {
			got, err := inSegments(l.DataDir, instrument)
			if err == nil && len(got) < least {
				err = fmt.Errorf("they have %d", len(got))
			}
			for i := range len(got) {
				if got[i] != 1 {
					t.Fatalf("of the first %d datagrams of %s, segments have number %d %d times", len(got), instrument, i, got[i])
				}
			}
			return err
		})
	}
}

// numberedSender sends datagrams with the name of their Instrument and a number from 0 on.
type numberedSender struct {
	t     *testing.T
	conns map[string]net.Conn
	// sent is how many of each.
	sent int
}

func newNumberedSender(t *testing.T, ports map[string]int) *numberedSender {
	s := &numberedSender{t: t, conns: map[string]net.Conn{}}
	for instrument, port := range ports {
		conn, err := net.Dial("udp", testenv.Loopback(port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		s.conns[instrument] = conn
	}
	return s
}

func (s *numberedSender) write(text string) {
	for instrument, conn := range s.conns {
		_, _ = fmt.Fprintf(conn, "%s %s.", instrument, text) // refused until the port is open
	}
}

// killAmid sends until the stream has some of the datagrams that gather, waits until it has all of the others, and kills the Site. It
// returns how many of each it had.
func (s *numberedSender) killAmid(l *leaf, stream jetstream.Stream) map[string]int {
	s.t.Helper()
	consumer, err := stream.OrderedConsumer(s.t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		s.t.Fatal(err)
	}
	defer messages.Stop()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(5 * time.Millisecond); ; s.sent++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.write(fmt.Sprintf("%05d", s.sent))
			}
		}
	}()
	seen := map[string]int{}
	until := func(enough func() bool) {
		for !enough() {
			m, err := messages.Next(jetstream.NextMaxWait(testenv.Patience))
			if err != nil {
				s.t.Fatalf("the stream had %v of %d: %v", seen, s.sent, err)
			}
			for instrument, numbers := range numbersIn(m.Data()) {
				seen[instrument] += len(numbers)
			}
		}
	}
	until(func() bool { return seen["gathered"] > 0 })
	close(stop)
	<-stopped
	until(func() bool { return seen["stored"] >= s.sent })
	l.Kill()
	return seen
}

var numberedText = regexp.MustCompile(`(gathered|stored) (\d{5})\.`)

// numbersIn are the numbers of datagrams in a message or a segment, by Instrument.
func numbersIn(data []byte) map[string][]int {
	all := map[string][]int{}
	for _, found := range numberedText.FindAllSubmatch(data, -1) {
		n, _ := strconv.Atoi(string(found[2]))
		all[string(found[1])] = append(all[string(found[1])], n)
	}
	return all
}

// inSegments is how often each number is in the segments of an Instrument.
func inSegments(dataDir, instrument string) (map[int]int, error) {
	times := map[int]int{}
	err := filepath.WalkDir(filepath.Join(dataDir, "objects", "archive", "o", "north", instrument, "s"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, n := range numbersIn(data)[instrument] {
			times[n]++
		}
		return err
	})
	return times, err
}
