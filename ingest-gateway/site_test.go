// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// lab is a Site: real servers, its streams and buckets, and its registry.
type lab struct {
	t        *testing.T
	nats     *testenv.NATSServer
	minio    *testenv.MinIOServer
	js       jetstream.JetStream
	site     string
	bucket   string
	store    objectstore.Store
	registry jetstream.KeyValue
	entries  map[string]wire.InstrumentEntry
	revision int64
	// mirrors is how many partners the registry has.
	mirrors int
	// archivist works for the Site from its first gateway on.
	archivist *testenv.Archivist
}

// newLab has a bucket of the S3 server that tests share: no test stops that.
func newLab(t *testing.T) *lab {
	t.Helper()
	return (&lab{nats: testenv.NATS(t, testenv.NATSOptions{}), minio: testenv.SharedMinIO(t, testenv.MinIOOptions{})}).newSite(t, "hub")
}

// newLabAlone has an S3 server of its own.
func newLabAlone(t *testing.T) *lab {
	t.Helper()
	return (&lab{nats: testenv.NATS(t, testenv.NATSOptions{}), minio: testenv.MinIO(t, testenv.MinIOOptions{})}).newSite(t, "hub")
}

// newSite is another Site on the same servers.
func (l *lab) newSite(t *testing.T, code string) *lab {
	t.Helper()
	n := &lab{t: t, nats: l.nats, minio: l.minio, site: code, bucket: testenv.BucketName(), entries: map[string]wire.InstrumentEntry{}}
	n.js = l.nats.JetStream(t)
	testenv.CreateSite(t, n.js, code)
	n.store = l.minio.Bucket(t, n.bucket)
	l.minio.GatewayUser(t, n.bucket) // the store may be away when a gateway starts
	var err error
	if n.registry, err = n.js.KeyValue(t.Context(), wire.RegistryBucket(code)); err != nil {
		t.Fatal(err)
	}
	return n
}

// newArchivist starts an archivist, which ends with the lab.
func (l *lab) newArchivist(pod string) *testenv.Archivist {
	l.t.Helper()
	return testenv.StartArchivist(l.t, testenv.ArchivistOptions{
		Site: l.site, NATS: l.nats, MinIO: l.minio, Bucket: l.bucket, Pod: pod, Flags: []string{"--forward-networks", "127.0.0.0/8"},
	})
}

// tcpInstrument is an entry with one listener over TCP.
func tcpInstrument(name string, port int) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		UID: "uid-" + name, Generation: 1, Instrument: name, Gateway: "north",
		Listeners: []wire.ListenerEntry{{
			Name: "frames", Protocol: wire.ProtocolTCP, Port: uint16(port), Framing: wire.FramingUntilClose, Receipt: wire.ReceiptLine,
			IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000,
		}},
		MaxObjectSize: 1 << 30, MaxConnections: 1024, Acknowledge: "Stored", MediaType: "image/jpeg",
		CadenceMillis: 60_000, RepeatWindowMillis: 720 * 3_600_000, SegmentAgeMillis: 600_000, SegmentSize: 64 << 20, PackBelow: 64 << 10,
	}
}

// declare makes entries the whole registry, as the operator does: what is new
// or changed, what is gone, and then the marker.
func (l *lab) declare(t *testing.T, entries ...wire.InstrumentEntry) int64 {
	t.Helper()
	l.revision++
	next := map[string]wire.InstrumentEntry{}
	for _, e := range entries {
		e.Revision = l.revision
		l.putEntry(t, e)
		next[e.Instrument] = e
	}
	for name := range l.entries {
		if _, ok := next[name]; !ok {
			if err := l.registry.Delete(t.Context(), wire.RegistryInstrumentKey(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.entries = next
	l.complete(t)
	return l.revision
}

func (l *lab) putEntry(t *testing.T, e wire.InstrumentEntry) {
	t.Helper()
	b, err := wire.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	l.putKey(t, wire.RegistryInstrumentKey(e.Instrument), b)
}

func (l *lab) complete(t *testing.T) {
	t.Helper()
	b, err := wire.Encode(wire.RegistryComplete{Revision: l.revision, Count: len(l.entries), Mirrors: l.mirrors})
	if err != nil {
		t.Fatal(err)
	}
	l.putKey(t, wire.RegistryCompleteKey, b)
}

func (l *lab) putKey(t *testing.T, key string, value []byte) {
	t.Helper()
	if _, err := l.registry.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// awaitRevision waits until the gateway reports that it runs a registry.
func (l *lab) awaitRevision(t *testing.T, gateway string, revision int64) wire.GatewayStatus {
	t.Helper()
	var status wire.GatewayStatus
	await(t, fmt.Sprintf("the gateway runs revision %d", revision), func() (bool, string) {
		var err error
		status, err = l.gatewayStatus(t, gateway)
		return err == nil && status.Revision >= revision, fmt.Sprintf("%+v, %v", status, err)
	})
	return status
}

func (l *lab) gatewayStatus(t *testing.T, gateway string) (wire.GatewayStatus, error) {
	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		return wire.GatewayStatus{}, err
	}
	e, err := kv.Get(t.Context(), wire.GatewayStatusKey(gateway))
	if err != nil {
		return wire.GatewayStatus{}, err
	}
	return wire.Decode[wire.GatewayStatus](e.Value())
}
