// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/sender"
)

// TestFailover sends 500 objects and 50,000 datagrams while one gateway pod is killed and one node is cut off, with a server of NATS, and
// compares the receipts of the senders with what the archive holds.
func TestFailover(t *testing.T) {
	l := theLab
	l.apply(t, instrumentTCP("failover-camera", 30111))
	l.apply(t, instrumentUDP("failover-magnetometer", 30112))
	l.waitReady(t, "instrument/failover-camera", "instrument/failover-magnetometer")
	nodes := l.nodeAddresses(t)

	const objects = 500
	dir := writeObjects(t, objects, 64<<10)
	report := filepath.Join(t.TempDir(), "receipts.jsonl")
	camera := l.start(t, l.substorm, "send", "--to", join(nodes, 30111), "--parallel", "4",
		"--rate", "12", "--give-up-after", "5m", "--report", report, dir)

	// The gateway on the first node is killed while both senders are at work, with no chance to drain. Datagrams that are not received
	// meanwhile are lost.
	const before, during, after = 20_000, 10_000, 20_000
	first := join(nodes[:1], 30112)
	probes := l.forwards(t, first, "failover-magnetometer")
	l.sendDatagrams(t, first, before).succeeds(t)
	outage := l.sendDatagrams(t, first, during)
	l.waitObjects(t, report, objects/5)
	l.cluster(t, "exec", "1", "--", "sh", "-c", "kill -KILL $(pidof ingest-gateway)")
	l.waitRestarted(t, l.gatewayOn(t, 1))
	outage.wait(t, 2*patience) // how it ends depends on how long no process listened
	probes += l.forwards(t, first, "failover-magnetometer")

	// The last node, which does not hold the store, is cut off, and one of the three
	// servers of NATS with it.
	if on := l.podsOn(t, "app.kubernetes.io/component=nats", 3); len(on) != 1 {
		t.Fatalf("servers of NATS on the last node: %q, want one", on)
	}
	l.cluster(t, "cut", "3")
	stranded := l.gatewayOn(t, 3)
	l.sendDatagrams(t, first, after).succeeds(t)
	camera.succeeds(t)
	receipts := readReport(t, report)
	if len(receipts) != objects {
		t.Fatalf("the sender holds %d receipts, want %d", len(receipts), objects)
	}

	// The ledger says that what the stranded gateway holds is unknown.
	eventually(t, func() error { return stale(l.ledger(t, "failover-camera"), stranded) })
	l.cluster(t, "join", "3")
	l.waitReady(t, "ingestgateway/demo")

	eventually(t, func() error { return l.compareObjects(t, "failover-camera", receipts) })
	eventually(t, func() error { return l.compareDatagrams(t, "failover-magnetometer", before+after, during+probes) })
}

// compareObjects returns nil once every receipt is listed exactly once, and the
// ledger's columns agree with one another and with the sender's list.
func (l *lab) compareObjects(t testing.TB, instrument string, receipts []sender.Result) error {
	listed := map[string]int{}
	for _, r := range l.list(t, instrument) {
		listed[r.Digest.String()]++
	}
	for _, r := range receipts {
		if n := listed[r.SHA256]; n != 1 {
			return fmt.Errorf("%s (sha-256 %s): listed %d times, want once", r.Name, r.SHA256, n)
		}
	}
	if len(listed) != len(receipts) {
		return fmt.Errorf("%d objects listed, the sender holds %d receipts", len(listed), len(receipts))
	}
	s := l.ledger(t, instrument)
	if s.Received.Objects != s.Stored.Objects || s.Stored.Objects != s.Announced.Objects {
		return fmt.Errorf("columns differ: received %d, stored %d, announced %d", s.Received.Objects, s.Stored.Objects, s.Announced.Objects)
	}
	if len(s.Differences) > 0 {
		return fmt.Errorf("the ledger says %q", s.Differences)
	}
	if s.Announced.Objects-s.Duplicates.Objects != uint64(len(receipts)) {
		return fmt.Errorf("announced %d less duplicates %d is not the sender's %d", s.Announced.Objects, s.Duplicates.Objects, len(receipts))
	}
	if s.Received.Acknowledged < uint64(len(receipts)) {
		return fmt.Errorf("acknowledged %d, the sender holds %d receipts", s.Received.Acknowledged, len(receipts))
	}
	t.Logf("objects: received %d, acknowledged %d, stored %d, announced %d, duplicates %d; the sender's list %d",
		s.Received.Objects, s.Received.Acknowledged, s.Stored.Objects, s.Announced.Objects, s.Duplicates.Objects, len(receipts))
	return nil
}

// compareDatagrams returns nil once what was safe is archived, and everything that was sent to a gateway that was there
// is accounted for. UDP may lose any datagram that was sent while the gateway was not there.
func (l *lab) compareDatagrams(t testing.TB, instrument string, heard, perhaps uint64) error {
	s := l.ledger(t, instrument)
	var archived uint64
	for _, r := range l.list(t, instrument) {
		if r.Segment != nil {
			archived += r.Segment.Datagrams
		}
	}
	if archived != s.Announced.Datagrams || s.Stored.Datagrams != archived || len(s.Differences) > 0 {
		return fmt.Errorf("announced %d datagrams, stored %d, segments hold %d; the ledger says %q",
			s.Announced.Datagrams, s.Stored.Datagrams, archived, s.Differences)
	}
	accounted := s.Announced.Datagrams + s.Received.Unknown
	for _, n := range s.Received.Dropped {
		accounted += n
	}
	if accounted < heard || accounted > heard+perhaps {
		return fmt.Errorf("%d datagrams were sent to a gateway that was there, and %d around its death; %d archived, %d accounted for",
			heard, perhaps, archived, accounted)
	}
	t.Logf("datagrams: sent %d, archived %d, in memory at the kill %d, dropped %v, never seen by a gateway %d",
		heard+perhaps, archived, s.Received.Unknown, s.Received.Dropped, heard+perhaps-accounted)
	return nil
}

// readReport returns the objects of a sender's list; a file that isn't there
// yet is an empty list.
func readReport(t testing.TB, path string) []sender.Result {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []sender.Result
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s sender.Result
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Outcome == sender.Received {
			all = append(all, s)
		}
	}
	return all
}

func (l *lab) waitObjects(t testing.TB, report string, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := len(readReport(t, report)); got < n {
			return fmt.Errorf("the sender holds %d receipts, waiting for %d", got, n)
		}
		return nil
	})
}

func join(hosts []string, port int) string {
	to := make([]string, len(hosts))
	for i, h := range hosts {
		to[i] = fmt.Sprintf("%s:%d", h, port)
	}
	return strings.Join(to, ",")
}
