// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "hub"
	bucket = "archive"
	// patience is how long the test waits for what must happen. It says nothing about
	// how long that takes.
	patience = 5 * time.Minute
)

// pool is one gateway and its instruments.
type pool struct {
	name           string
	tcp, http, udp int
}

// program is a gateway or an archivist, and the connections on which it reaches the servers.
type program struct {
	name            string
	process         *testenv.Process
	toNATS, toStore *testenv.Relay
}

func (p *pool) camera() string { return "camera-" + p.name }
func (p *pool) web() string    { return "web-" + p.name }
func (p *pool) mag() string    { return "mag-" + p.name }

// entries are the registry entries of the pool's instruments. Objects may wait in the spool after their receipt.
func (p *pool) entries() []wire.InstrumentEntry {
	camera := testenv.InstrumentTCP(p.camera(), p.tcp)
	web := testenv.InstrumentTCP(p.web(), p.http)
	web.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP, Port: uint16(p.http),
		IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000, UploadExpiryMillis: 3_600_000}}
	entries := []wire.InstrumentEntry{camera, web, testenv.InstrumentUDP(p.mag(), p.udp)}
	public := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	for i := range entries {
		entries[i].Access = public
		entries[i].Gateway = p.name
		entries[i].Acknowledge = "StoredOrSpooled"
	}
	return entries
}

// lab is a Site with two pools and two archivists.
type lab struct {
	t        *testing.T
	nats     *testenv.NATSServer
	minio    *testenv.MinIOServer
	store    objectstore.Store
	js       jetstream.JetStream
	pools    []*pool
	programs []program
	mirrors  []*mirror
	// mirrorFaults are those of the mirrors' runs and of their connections.
	mirrorFaults []fault
	// began is a time before anything was sent.
	began    time.Time
	registry testenv.Registry
	cli      string
	secrets  string
	// patience is how long await tries, tryFor how long one try may take.
	patience, tryFor time.Duration
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, nats: testenv.NATS(t, testenv.NATSOptions{}), minio: testenv.MinIO(t, testenv.MinIOOptions{}), cli: testenv.Program(t, "cli"), began: time.Now().UTC(), patience: patience, tryFor: time.Minute}
	l.secrets = testenv.CredentialsDir(t, l.minio.Root())
	l.store, l.js = l.minio.Bucket(t, bucket), l.nats.JetStream(t)
	testenv.CreateSite(t, l.js, site)
	for _, name := range []string{"north", "south"} {
		l.pools = append(l.pools, &pool{name: name, tcp: testenv.FreePort(t), http: testenv.FreePort(t), udp: testenv.FreePort(t)})
	}
	for _, p := range l.pools {
		l.registry.Instruments = append(l.registry.Instruments, p.entries()...)
	}
	l.declare()
	for _, p := range l.pools {
		l.run("gateway "+p.name, func(nats, s3 string) *testenv.Process {
			return testenv.StartGateway(t, testenv.GatewayOptions{Site: site, NATS: l.nats, MinIO: l.minio, Bucket: bucket, Pool: p.name,
				NATSServer: nats, S3Endpoint: s3}).Process
		})
	}
	for _, pod := range []string{"archivist-0", "archivist-1"} {
		l.run(pod, func(nats, s3 string) *testenv.Process {
			return testenv.StartArchivist(t, testenv.ArchivistOptions{Site: site, NATS: l.nats, MinIO: l.minio, Bucket: bucket, Pod: pod,
				NATSServer: nats, S3Endpoint: s3, Flags: []string{"--part-interval", "2s"}}).Process
		})
	}
	return l
}

// run starts a program with connections of its own to the servers.
func (l *lab) run(name string, start func(nats, s3 string) *testenv.Process) {
	p := program{name: name, toNATS: testenv.StartRelay(l.t, l.nats.Address()), toStore: testenv.StartRelay(l.t, l.minio.Address())}
	p.process = start("nats://"+p.toNATS.Address(), "http://"+p.toStore.Address())
	l.programs = append(l.programs, p)
}

// declare writes the registry again, as the operator does if it was lost.
func (l *lab) declare() {
	l.t.Helper()
	l.registry.Revision++
	for i := range l.registry.Instruments {
		l.registry.Instruments[i].Revision = l.registry.Revision
	}
	l.nats.Declare(l.t, site, l.registry)
}

// deleteBucket deletes a key-value bucket; restoreBuckets makes what is missing, as
// the operator does.
func (l *lab) deleteBucket(name string) {
	l.t.Helper()
	l.await("bucket "+name+" is deleted", func(ctx context.Context) error { return l.js.DeleteKeyValue(ctx, name) })
}

func (l *lab) restoreBuckets() {
	l.t.Helper()
	testenv.CreateSite(l.t, l.js, site)
	l.declare()
}

// substorm runs a command of the CLI against the Site, and returns its standard output. An error includes standard error too.
func (l *lab) substorm(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--code", site, "--nats-servers", l.nats.URL(),
		"--s3-endpoint", l.minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", l.secrets)
	cmd := exec.CommandContext(ctx, l.cli, args...)
	var out, beside bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &beside
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, out.String(), beside.String())
	}
	return out.String(), nil
}

// await calls try until it returns nil.
func (l *lab) await(what string, try func(context.Context) error) {
	l.t.Helper()
	var err error
	for range testenv.AttemptsFor(l.patience) {
		ctx, cancel := context.WithTimeout(l.t.Context(), l.tryFor)
		err = try(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	l.t.Fatalf("not within %v: %s: %v", l.patience, what, err)
}

// rounds is how many faults are injected: SUBSTORM_TEST_ROUNDS, else a few.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SUBSTORM_TEST_ROUNDS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SUBSTORM_TEST_ROUNDS=%s is no number of rounds", text)
	}
	return n
}

// seed chooses the faults: SUBSTORM_TEST_SEED, else the time. The log names it.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SUBSTORM_TEST_SEED")
	if text == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(fmt.Errorf("SUBSTORM_TEST_SEED: %w", err))
	}
	return n
}
