// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/cli/send"
)

// TestFailover sends 500 objects and 50,000 datagrams while one gateway pod is
// killed and one node is cut off, and compares what the senders were told with
// what the archive holds.
func TestFailover(t *testing.T) {
	l := theLab
	l.apply(t, instrumentTCP("failover-camera", 30111))
	l.apply(t, instrumentUDP("failover-magnetometer", 30112))
	l.waitReady(t, "instrument/failover-camera", "instrument/failover-magnetometer")
	nodes := l.nodeAddresses(t)

	const objects, datagrams = 500, 50_000
	dir := writeObjects(t, objects, 64<<10)
	report := filepath.Join(t.TempDir(), "receipts.jsonl")
	camera := l.start(t, l.substorm, "send", "--to", join(nodes, 30111), "--parallel", "4",
		"--rate", "25", "--give-up-after", "5m", "--report", report, dir)
	// A node that is cut off swallows datagrams without a word: none is sent there,
	// so that what is missing is missing because of the kill.
	magnetometer := l.start(t, l.substorm, "send", "--udp", "--lines", "--rate", "2500",
		"--to", join(nodes[:2], 30112), writeLines(t, datagrams))

	// The gateway on the first node is killed while both senders are at work,
	// with no chance to drain; then the last node, which holds neither store nor
	// NATS, is cut off.
	l.waitObjects(t, report, objects/10)
	l.cluster(t, "exec", "1", "--", "sh", "-c", "kill -KILL $(pidof ingest-gateway)")
	l.waitRestarted(t, l.gatewayOn(t, 1))
	l.waitObjects(t, report, objects/3)
	l.cluster(t, "cut", "3")
	stranded := l.gatewayOn(t, 3)

	if code := camera.wait(t, 4*time.Minute); code != 0 {
		t.Fatalf("the camera's sender ended with %d:\n%s", code, camera.out.String())
	}
	if code := magnetometer.wait(t, 2*time.Minute); code != 0 {
		t.Fatalf("the magnetometer's sender ended with %d:\n%s", code, magnetometer.out.String())
	}
	receipts := readReport(t, report)
	if len(receipts) != objects {
		t.Fatalf("the sender holds %d receipts, want %d", len(receipts), objects)
	}

	// What the stranded gateway holds is unknown, and the ledger says so.
	eventually(t, time.Minute, func() error { return stale(l.ledger(t, "failover-camera"), stranded) })
	l.cluster(t, "join", "3")
	l.waitReady(t, "ingestgateway/demo")

	eventually(t, 3*time.Minute, func() error { return l.compareObjects(t, "failover-camera", receipts) })
	eventually(t, 2*time.Minute, func() error { return l.compareDatagrams(t, "failover-magnetometer", datagrams) })
}

// compareObjects returns nil once every receipt is listed exactly once, and the
// ledger's columns agree with one another and with the sender's list.
func (l *lab) compareObjects(t testing.TB, instrument string, receipts []send.Result) error {
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
	if s.Announced.Objects-s.Repeated.Objects != uint64(len(receipts)) {
		return fmt.Errorf("announced %d less repeated %d is not the sender's %d", s.Announced.Objects, s.Repeated.Objects, len(receipts))
	}
	if s.Received.Acknowledged < uint64(len(receipts)) {
		return fmt.Errorf("acknowledged %d, the sender holds %d receipts", s.Received.Acknowledged, len(receipts))
	}
	t.Logf("objects: received %d, acknowledged %d, stored %d, announced %d, repeated %d; the sender's list %d",
		s.Received.Objects, s.Received.Acknowledged, s.Stored.Objects, s.Announced.Objects, s.Repeated.Objects, len(receipts))
	return nil
}

// compareDatagrams returns nil once what was safe is archived, and everything
// that was read is accounted for. UDP itself may lose what it likes on the way.
func (l *lab) compareDatagrams(t testing.TB, instrument string, sentDatagrams uint64) error {
	s := l.ledger(t, instrument)
	var archived uint64
	for _, r := range l.list(t, instrument) {
		if r.Segment != nil {
			archived += r.Segment.Datagrams
		}
	}
	if archived != s.Announced.Datagrams || s.Stored.Datagrams != archived {
		return fmt.Errorf("announced %d datagrams, stored %d, segments hold %d", s.Announced.Datagrams, s.Stored.Datagrams, archived)
	}
	accounted := s.Announced.Datagrams + s.Received.Unknown
	for _, n := range s.Received.Dropped {
		accounted += n
	}
	// Only what arrives while the killed gateway is away may be missing.
	if archived < sentDatagrams/2 || accounted > sentDatagrams {
		return fmt.Errorf("%d datagrams sent, %d archived, %d accounted for", sentDatagrams, archived, accounted)
	}
	t.Logf("datagrams: sent %d, archived %d, in memory at the kill %d, dropped %v, never seen by a gateway %d",
		sentDatagrams, archived, s.Received.Unknown, s.Received.Dropped, sentDatagrams-accounted)
	return nil
}

// writeObjects makes n files of random bytes.
func writeObjects(t testing.TB, n, size int) string {
	t.Helper()
	dir := t.TempDir()
	data := make([]byte, size)
	for i := range n {
		_, _ = rand.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("frame-%04d.bin", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// writeLines makes a file of n lines, each different.
func writeLines(t testing.TB, n int) string {
	t.Helper()
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, "2026-03-17 04:45:00.000 %06d 20714.31 -112.84 46893.05\n", i)
	}
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readReport returns the objects of a sender's list; a file that isn't there
// yet is an empty list.
func readReport(t testing.TB, path string) []send.Result {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []send.Result
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s send.Result
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Outcome == send.Received {
			all = append(all, s)
		}
	}
	return all
}

func (l *lab) waitObjects(t testing.TB, report string, n int) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
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
