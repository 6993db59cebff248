// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

// station is a Site with a real gateway, and what a user types to reach its archive.
type station struct {
	gateway            *testenv.Gateway
	minio              *testenv.MinIOServer
	camera, mag, small int // ports
	spectra            int // of LengthPrefixed
	archive            []string
}

func newStation(t *testing.T) *station {
	t.Helper()
	s := &station{minio: testenv.SharedMinIO(t, testenv.MinIOOptions{}), camera: testenv.FreePort(t), mag: testenv.FreePort(t), small: testenv.FreePort(t), spectra: testenv.FreePort(t)}
	bucket := testenv.BucketName()
	nats := testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	testenv.CreateSite(t, nats.JetStream(t), "hub")
	s.minio.Bucket(t, bucket)
	small := testenv.InstrumentTCP("small", s.small)
	small.MaxObjectSize = 1000
	spectra := testenv.InstrumentTCP("spectra", s.spectra)
	spectra.Listeners[0].Framing = wire.FramingLengthPrefixed
	s.gateway = testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: s.minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP("camera", s.camera), testenv.InstrumentUDP("mag", s.mag), small, spectra}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: s.minio, Bucket: bucket})
	secrets := testenv.CredentialsDir(t, s.minio.Root())
	s.archive = []string{"--code", "hub", "--s3-endpoint", s.minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", secrets, "--nats-servers", nats.URL()}
	return s
}

func (s *station) query(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, code := runProgram(t, "substorm", append(append([]string{"archive"}, args...), s.archive...)...)
	if code != 0 {
		t.Fatalf("archive %v: exit code %d\n%s", args, code, stderr)
	}
	return out
}

func jsonLines[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

func receipts(t *testing.T, file string) []sender.Result {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the sender has not begun
		t.Fatal(err)
	}
	return jsonLines[sender.Result](t, string(text))
}

// TestLengthPrefixedToArchive: over one connection to a real gateway, and with
// the wrong framing nothing passes for an object.
func TestLengthPrefixedToArchive(t *testing.T) {
	s := newStation(t)
	dir, report := t.TempDir(), filepath.Join(t.TempDir(), "report.jsonl")
	const objects = 100
	for i := range objects {
		data := make([]byte, 1+i*i*40)
		_, _ = rand.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("spectrum-%02d", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to := []string{"send", "--quiet", "--to", testenv.Loopback(s.spectra), "--report", report}
	if _, stderr, code := runProgram(t, "substorm", append(to, "--framing", "length-prefixed", "--parallel", "32", dir)...); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	listed := map[string]int{}
	waitFor(t, func() error {
		clear(listed)
		for _, n := range jsonLines[wire.Notice](t, s.query(t, "ls", "-i", "spectra", "-o", "json")) {
			listed[n.Digest.String()]++
		}
		if len(listed) < objects {
			return fmt.Errorf("%d of %d objects are listed", len(listed), objects)
		}
		return nil
	})
	for _, r := range receipts(t, report) {
		if r.Outcome != sender.Received || r.Tries != 1 || listed[r.SHA256] != 1 {
			t.Errorf("report %+v, listed %d times", r, listed[r.SHA256])
		}
	}
	_, stderr, code := runProgram(t, "substorm", append(to, "--give-up-after", "0s", filepath.Join(dir, "spectrum-03"))...)
	if code != 1 || !strings.Contains(stderr, "refused") {
		t.Errorf("with the wrong framing: exit code %d\n%s", code, stderr)
	}
}

// TestFromSenderToArchive: what the sender has a receipt for is what the
// archive lists, byte for byte, and the ledger agrees.
func TestFromSenderToArchive(t *testing.T) {
	s := newStation(t)
	dir, report := t.TempDir(), filepath.Join(t.TempDir(), "report.jsonl")
	for i, size := range []int{1, 100, 65_536, 65_537, 3 << 20, 20 << 20} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("frame-%d", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(args ...string) {
		t.Helper()
		if _, stderr, code := runProgram(t, "substorm", args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
		}
	}
	// The first of the two addresses is dead.
	must("send", "--quiet", "--to", testenv.Loopback(testenv.FreePort(t))+","+testenv.Loopback(s.camera), "--parallel", "3", "--report", report, dir)
	must("send", "--quiet", "--to", testenv.Loopback(s.camera), "--report", report, filepath.Join(dir, "frame-2")) // a repeat
	var lines bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&lines, "20826.%02d -86.75\n", i%100)
	}
	series := filepath.Join(t.TempDir(), "series")
	if err := os.WriteFile(series, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	must("send", "--quiet", "--udp", "--lines", "--rate", "5000", "--to", testenv.Loopback(s.mag), series)

	// Too large: refused for good, while it is sent.
	_, stderr, code := runProgram(t, "substorm", "send", "--to", testenv.Loopback(s.small), filepath.Join(dir, "frame-5"))
	if code != 1 || !strings.Contains(stderr, "refused ObjectTooLarge") || !strings.Contains(stderr, "spec.limits.maxObjectSize") {
		t.Errorf("of an object that is too large: exit code %d\n%s", code, stderr)
	}

	got := receipts(t, report)
	if len(got) != 7 {
		t.Fatalf("%d receipts, want 7", len(got))
	}
	waitFor(t, func() error { return segmentsHold(s, t, 2000) })
	s.gateway.Stop() // closes the manifest's open parts
	compareWithArchive(t, s, got, dir)
	compareLedger(t, s)
}

// segmentsHold returns nil once the ledger says that so many datagrams are in segments.
func segmentsHold(s *station, t *testing.T, n uint64) error {
	for _, l := range jsonLines[archive.Ledger](t, s.query(t, "ledger", "-i", "mag", "-o", "json")) {
		if l.Stored.Datagrams == n {
			return nil
		}
	}
	return fmt.Errorf("not all of %d datagrams are in segments:\n%s", n, s.query(t, "ledger"))
}

func waitFor(t *testing.T, done func() error) {
	t.Helper()
	var err error
	for range testenv.Attempts() {
		if err = done(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func compareWithArchive(t *testing.T, s *station, got []sender.Result, dir string) {
	t.Helper()
	listed := map[string]int{}
	for _, n := range jsonLines[wire.Notice](t, s.query(t, "ls", "-i", "camera", "-o", "json")) {
		listed[n.Digest.String()]++
	}
	for _, r := range got {
		if r.Outcome != sender.Received || listed[r.SHA256] != 1 {
			t.Errorf("%s, %s: listed %d times, want once", r.Name, r.SHA256, listed[r.SHA256])
		}
	}
	if len(listed) != 6 {
		t.Errorf("%d objects listed, want 6", len(listed))
	}
	largest := got[0]
	for _, r := range got {
		if r.Bytes > largest.Bytes {
			largest = r
		}
	}
	fetched := s.query(t, "get", largest.SHA256, "--file", "-")
	sent, err := os.ReadFile(filepath.Join(dir, filepath.Base(largest.Name)))
	if err != nil || fetched != string(sent) {
		t.Errorf("fetched other bytes than were sent (%v)", err)
	}
	var datagrams uint64
	for _, n := range jsonLines[wire.Notice](t, s.query(t, "ls", "-i", "mag", "-o", "json")) {
		datagrams += n.Segment.Datagrams
	}
	if datagrams != 2000 {
		t.Errorf("segments hold %d datagrams, want 2000", datagrams)
	}
}

func compareLedger(t *testing.T, s *station) {
	t.Helper()
	var camera, mag, small wire.Totals
	var repeated uint64
	for _, l := range jsonLines[archive.Ledger](t, s.query(t, "ledger", "-o", "json")) {
		if !l.Agree && l.Instrument != "mag" {
			t.Errorf("%s %s: %q", l.Instrument, l.Day, l.Differences)
		}
		switch l.Instrument {
		case "camera":
			camera, repeated = camera.Plus(l.Received), repeated+l.Duplicates.Objects
		case "mag":
			mag = mag.Plus(l.Received)
		case "small":
			small = small.Plus(l.Received)
		}
	}
	if camera.Objects != 7 || camera.Acknowledged != 7 || repeated != 1 || mag.Datagrams != 2000 || small.Objects != 0 || small.Unfinished[wire.CauseObjectTooLarge] != 1 {
		t.Errorf("ledger: camera %+v, repeated %d, mag %+v, small %+v\n%s", camera, repeated, mag, small, s.query(t, "ledger"))
	}
}
