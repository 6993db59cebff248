// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

// pair is a Site with two gateways that receive for one instrument.
type pair struct {
	nats    *testenv.NATSServer
	one     *testenv.Gateway
	two     *testenv.Gateway
	to      string
	archive []string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	minio, nats := testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	bucket := testenv.BucketName()
	testenv.CreateSite(t, nats.JetStream(t), "hub")
	minio.Bucket(t, bucket)
	first, second := testenv.FreePort(t), testenv.FreePort(t)
	spectra := testenv.InstrumentTCP("spectra", first)
	spectra.Listeners[0].Framing = wire.FramingLengthPrefixed
	other := spectra.Listeners[0]
	other.Port = uint16(second)
	spectra.Listeners = append(spectra.Listeners, other)
	start := func(port int, name string) *testenv.Gateway {
		return testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Instruments: []wire.InstrumentEntry{spectra},
			Flags: []string{"--gateway", name, "--ports", fmt.Sprint(port)}})
	}
	p := &pair{nats: nats, one: start(first, "north-0"), two: start(second, "north-1"), to: testenv.Loopback(first) + "," + testenv.Loopback(second)}
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})
	secrets := testenv.CredentialsDir(t, minio.Root())
	p.archive = []string{"--code", "hub", "--s3-endpoint", minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", secrets, "--nats-servers", nats.URL()}
	return p
}

// lists says how often each digest is listed.
func (p *pair) lists(t *testing.T) map[string]int {
	t.Helper()
	out, stderr, code := runProgram(t, "substorm", append([]string{"archive", "ls", "-i", "spectra", "-o", "json"}, p.archive...)...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	listed := map[string]int{}
	for _, n := range jsonLines[wire.Notice](t, out) {
		listed[n.Digest.String()]++
	}
	return listed
}

// service runs `substorm send` until the returned function is called.
func service(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	code := make(chan int, 1)
	go func() {
		err := Run(ctx, Config{Program: "substorm", Args: append([]string{"send"}, args...), Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said})
		code <- usage.ExitCode(err)
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if c := <-code; c != 0 || t.Failed() {
				t.Errorf("exit code %d\n%s", c, said.String())
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// TestSenderOutlivesGateways: while files come, gateways are killed in turn, both
// at once, and the sender itself ends and starts. In the end the archive
// lists every file once, the queue is empty, and the Site knows of sender and clock.
func TestSenderOutlivesGateways(t *testing.T) {
	p := newPair(t)
	dir, queue, report := t.TempDir(), filepath.Join(t.TempDir(), "queue"), filepath.Join(t.TempDir(), "report.jsonl")
	args := []string{"--to", p.to, "--framing", "length-prefixed", "--parallel", "8", "--watch", dir, "--queue", queue, "--settle", "0", "--scan-interval", "20ms",
		"--newest-first", "--heartbeat", "200ms", "--report", report}
	stop := service(t, args...)
	want := map[string]bool{}
	put := func(n int) {
		for range n {
			data := make([]byte, 1000+len(want)*100)
			_, _ = rand.Read(data)
			sum := sha256.Sum256(data)
			want[hex.EncodeToString(sum[:])] = true
			path := filepath.Join(dir, fmt.Sprintf("spectrum-%03d", len(want)))
			if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".tmp", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	received := func(least int) {
		t.Helper()
		waitFor(t, func() error {
			n := 0
			for _, r := range receipts(t, report) {
				if r.Outcome == sender.Received {
					n++
				}
			}
			if n < least {
				return fmt.Errorf("%d of %d receipts", n, least)
			}
			return nil
		})
	}
	put(60)
	received(20)
	servers := map[string]int{}
	for _, r := range receipts(t, report) {
		servers[r.Server]++
	}
	if len(servers) != 2 {
		t.Errorf("objects are not spread: %v", servers)
	}
	p.one.Kill()
	put(40)
	received(100)
	p.one.Start()
	p.two.Kill()
	put(40)
	received(140)
	p.one.Kill()
	put(20) // no gateway accepts them
	waitFor(t, func() error {
		if files, err := os.ReadDir(filepath.Join(queue, "objects")); err != nil || len(files) < 20 {
			return fmt.Errorf("%d files in the queue, %v", len(files), err)
		}
		return nil
	})
	stop()
	put(20) // no gateway accepts them, and they are not queued
	stop = service(t, args...)
	p.one.Start()
	p.two.Start()
	received(180)
	awaitSender(t, p)
	stop()
	if left, err := os.ReadDir(filepath.Join(queue, "objects")); err != nil || len(left) > 0 {
		t.Errorf("left in the queue: %v, %v", left, err)
	}
	waitFor(t, func() error {
		listed := p.lists(t)
		for digest := range want {
			if listed[digest] != 1 {
				return fmt.Errorf("%s is listed %d times; %d are listed, want %d", digest, listed[digest], len(listed), len(want))
			}
		}
		if len(listed) != len(want) {
			return fmt.Errorf("%d are listed, want %d", len(listed), len(want))
		}
		return nil
	})
}

// awaitSender waits for what the Site should know of the sender.
func awaitSender(t *testing.T, p *pair) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	kv, err := p.nats.JetStream(t).KeyValue(ctx, wire.StatusBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() error {
		keys, err := kv.ListKeysFiltered(ctx, wire.SenderStatusKey("spectra", "*"))
		if err != nil {
			return err
		}
		var s wire.SenderStatus
		for key := range keys.Keys() { // the sender's word to each gateway: the last one counts
			entry, err := kv.Get(ctx, key)
			if err != nil {
				return err
			}
			said, err := wire.Decode[wire.SenderStatus](entry.Value())
			if err != nil {
				return err
			}
			if len(said.Senders) != 1 || s.Sender != "" && s.Sender != said.Sender {
				t.Fatalf("%+v says another than %+v", said, s)
			}
			if said.ReportedAt.After(s.ReportedAt) {
				s = said
			}
		}
		switch {
		case s.ClockOffset == nil || s.RoundTrip == nil || s.QueueObjects != 0 || s.QueueBytes != 0 || s.Oldest != nil || !strings.HasPrefix(s.Gateway, "north-"):
			return fmt.Errorf("%+v", s)
		case time.Duration(*s.ClockOffset).Abs() > time.Duration(*s.RoundTrip)/2+time.Millisecond: // both clocks are this machine's
			return fmt.Errorf("offset %v, round trip %v", *s.ClockOffset, *s.RoundTrip)
		}
		return nil
	})
}
