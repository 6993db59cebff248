// SPDX-License-Identifier: Apache-2.0

package archivist_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site       = "thule"
	instrument = "allsky-1"
)

// The error names everything that is missing.
func TestMissing(t *testing.T) {
	err := archivist.Run(t.Context(), archivist.Config{})
	if err == nil {
		t.Fatal("it runs without a configuration")
	}
	for _, name := range []string{"--site", "--pod", "--scratch-dir", "--listen-http", "--s3-endpoint", "--s3-bucket", "--nats-servers", "--part-interval", "--compact-after"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

// lab is a Site with real servers.
type lab struct {
	t      *testing.T
	nats   *testenv.NATSServer
	minio  *testenv.MinIOServer
	bucket string
	js     jetstream.JetStream
	store  objectstore.Store
	sent   []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	l := &lab{t: t, nats: testenv.NATS(t, testenv.NATSOptions{}), minio: testenv.SharedMinIO(t, testenv.MinIOOptions{}), bucket: testenv.BucketName()}
	l.js, l.store = l.nats.JetStream(t), l.minio.Bucket(t, l.bucket)
	testenv.CreateSite(t, l.js, site)
	l.nats.Declare(t, site, testenv.Registry{Revision: 1, Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP(instrument, 30101)}})
	return l
}

func (l *lab) archivist(pod string) *testenv.Archivist {
	l.t.Helper()
	return testenv.StartArchivist(l.t, testenv.ArchivistOptions{Site: site, NATS: l.nats, MinIO: l.minio, Bucket: l.bucket, Pod: pod})
}

// send stores an object and announces it, as a gateway does.
func (l *lab) send() {
	l.t.Helper()
	body := fmt.Appendf(nil, "frame %d", len(l.sent))
	now, digest := time.Now().UTC(), wire.Digest(sha256.Sum256(body))
	n := wire.Notice{Site: site, Instrument: instrument, Record: wire.Record{
		Key: wire.RawKey(site, instrument, now, digest), Size: int64(len(body)), Digest: digest, State: wire.StateCurrent, MediaType: "image/png",
		ReceivedAt: now, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessVerified, Gateway: "north-0", Incarnation: "one"}}
	n.ID = n.Key
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.store.Put(l.t.Context(), n.Key, bytes.NewReader(body), n.Size, objectstore.PutOptions{
		ContentType: n.MediaType, Metadata: metadata, Digest: n.Digest, CreateOnly: true}); err != nil {
		l.t.Fatal(err)
	}
	data, err := wire.Encode(n)
	if err != nil {
		l.t.Fatal(err)
	}
	m := nats.NewMsg(wire.NoticeSubject(site, instrument))
	m.Data = data
	m.Header.Set(wire.HeaderID, n.ID)
	m.Header.Set(wire.HeaderMessageID, n.ID)
	if _, err := l.js.PublishMsg(l.t.Context(), m); err != nil {
		l.t.Fatal(err)
	}
	l.sent = append(l.sent, n.ID)
}

// listed waits until the manifests list what was sent, each once.
func (l *lab) listed() {
	l.t.Helper()
	var ids []string
	for range testenv.Attempts() {
		ids = nil
		for day, err := range manifest.Days(l.t.Context(), l.store, site, instrument) {
			if err != nil {
				l.t.Fatal(err)
			}
			for r, err := range manifest.Records(l.t.Context(), l.store, site, instrument, day) {
				if err != nil {
					l.t.Fatal(err)
				}
				ids = append(ids, r.ID)
			}
		}
		if len(ids) >= len(l.sent) {
			break
		}
	}
	slices.Sort(ids)
	want := slices.Sorted(slices.Values(l.sent))
	if !slices.Equal(ids, want) {
		l.t.Fatalf("listed %q, want %q", ids, want)
	}
}

// holder waits until the lease has a holder, and returns its name.
func (l *lab) holder(other string) string {
	l.t.Helper()
	leases, err := l.js.KeyValue(l.t.Context(), wire.LeaseBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	for range testenv.Attempts() {
		e, err := leases.Get(l.t.Context(), wire.ArchivistLease)
		if err != nil {
			continue
		}
		lease, err := wire.Decode[wire.Lease](e.Value())
		if err != nil {
			l.t.Fatal(err)
		}
		if lease.Holder != other {
			return lease.Holder
		}
	}
	l.t.Fatalf("nobody but %q holds the lease", other)
	return ""
}

// One of two archivists works; when it is killed the other continues where it was, and when that one is
// stopped the first, which was restarted, does.
func TestSuccessor(t *testing.T) {
	l := newLab(t)
	pods := map[string]*testenv.Archivist{"archivist-a": l.archivist("archivist-a"), "archivist-b": l.archivist("archivist-b")}
	l.send()
	l.listed()
	first := l.holder("")
	pods[first].Kill()
	l.send()
	second := l.holder(first)
	l.listed()
	pods[first].Start()
	pods[second].Stop()
	l.send()
	if third := l.holder(second); third != first {
		t.Errorf("%q holds the lease, and only %q runs", third, first)
	}
	l.listed()
}
