// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// webStation is a Site with two gateways that receive for an instrument over HTTP.
type webStation struct {
	store    objectstore.Store
	gateways []*testenv.Gateway
	ports    []int
	archive  []string
}

func newWebStation(t *testing.T, change func(*wire.InstrumentEntry), flags ...string) *webStation {
	t.Helper()
	minio, nats := testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	bucket := testenv.BucketName()
	testenv.CreateSite(t, nats.JetStream(t), "hub")
	s := &webStation{store: minio.Bucket(t, bucket), ports: []int{testenv.FreePort(t), testenv.FreePort(t)}}
	sky := testenv.InstrumentTCP("allsky", s.ports[0])
	sky.Listeners = nil
	for _, port := range s.ports {
		sky.Listeners = append(sky.Listeners, wire.ListenerEntry{Protocol: wire.ProtocolHTTP, Port: uint16(port),
			IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000, UploadExpiryMillis: 3_600_000})
	}
	change(&sky)
	for i, port := range s.ports {
		s.gateways = append(s.gateways, testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Instruments: []wire.InstrumentEntry{sky},
			Flags: append([]string{"--gateway", fmt.Sprint("north-", i), "--ports", fmt.Sprint(port)}, flags...)}))
	}
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})
	secrets := testenv.CredentialsDir(t, minio.Root())
	s.archive = []string{"--code", "hub", "--s3-endpoint", minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", secrets, "--nats-servers", nats.URL()}
	return s
}

// listed returns the digests that the archive lists, by key.
func (s *webStation) listed(t *testing.T) map[string]string {
	t.Helper()
	out, stderr, code := runProgram(t, "substorm", append([]string{"archive", "ls", "-i", "allsky", "-o", "json"}, s.archive...)...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	all := map[string]string{}
	for _, n := range jsonLines[wire.Notice](t, out) {
		all[n.Key] = n.Digest.String()
	}
	return all
}

// await waits until the archive lists exactly these digests.
func (s *webStation) await(t *testing.T, want map[string]string) {
	t.Helper()
	waitFor(t, func() error {
		all := s.listed(t)
		for key, digest := range want {
			if all[key] != digest {
				return fmt.Errorf("%s: %q, want %s; all: %v", key, all[key], digest, all)
			}
		}
		if len(all) != len(want) {
			return fmt.Errorf("%d are listed, want %d: %v", len(all), len(want), all)
		}
		return nil
	})
}

const skyNames = "o/hub/allsky/n/"

// cutter is a way to a server that breaks.
type cutter struct {
	t  *testing.T
	l  net.Listener
	to string
	// after so many bytes each connection is cut; 0 is never.
	after int64
	// pause after each 16 KiB.
	pause time.Duration
	// up are bytes that came from the sender, cuts connections that were cut.
	up, cuts atomic.Int64
}

func newCutter(t *testing.T, port int, after int64, pause time.Duration) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, l: l, to: testenv.Loopback(port), after: after, pause: pause}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go c.carry(from.(*net.TCPConn))
		}
	}()
	return c
}

func (c *cutter) url() string { return "http://" + c.l.Addr().String() + "/in/allsky/" }

func (c *cutter) carry(from *net.TCPConn) {
	defer from.Close()
	to, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = from.ReadFrom(to)
		_ = from.Close()
	}()
	_ = from.SetReadBuffer(32 << 10)
	buffer, carried := make([]byte, 16<<10), int64(0)
	for {
		n, err := from.Read(buffer)
		c.up.Add(int64(n))
		carried += int64(n)
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
		if c.after > 0 && carried >= c.after {
			c.cuts.Add(1)
			_ = from.SetLinger(0)
			return
		}
		time.Sleep(c.pause)
	}
}
