// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// lab is an Archive on real servers, with a wire between it and the store that
// can be cut.
type lab struct {
	*Archive
	nats    *testenv.NATSServer
	minio   *testenv.MinIOServer
	bucket  string
	objects objectstore.Store // past the wire
	wire    *cuttable
	pool    *memory.Pool
	ledger  *ledger.Ledger
	notices *stream.Committer
	metrics *prometheus.Registry
	camera  *intake.Instrument
	// packBelow of the camera, from the next incarnation on.
	packBelow int64
}

// newLab has a bucket of the S3 server that tests share: no test stops that.
func newLab(t *testing.T, patience time.Duration) *lab {
	t.Helper()
	return newLabOn(t, testenv.SharedMinIO(t, testenv.MinIOOptions{}), patience)
}

// newLabAlone has an S3 server of its own.
func newLabAlone(t *testing.T, patience time.Duration) *lab {
	t.Helper()
	return newLabOn(t, testenv.MinIO(t, testenv.MinIOOptions{}), patience)
}

func newLabOn(t *testing.T, minio *testenv.MinIOServer, patience time.Duration) *lab {
	t.Helper()
	l := &lab{nats: testenv.NATS(t, testenv.NATSOptions{}), minio: minio, bucket: testenv.BucketName(), metrics: prometheus.NewRegistry()}
	testenv.CreateSite(t, l.nats.JetStream(t), "hub")
	l.objects = l.minio.Bucket(t, l.bucket)
	l.wire = newCuttable(t, l.minio.URL())
	cfg := l.minio.Config(l.bucket)
	cfg.Endpoint = "http://" + l.wire.Addr().String()
	through, err := objectstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.pool, err = memory.NewPool(memory.Config{Budget: 64 << 20, ScratchDir: filepath.Join(t.TempDir(), "scratch"), ScratchSize: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if l.ledger, err = ledger.Open(ledger.Config{Dir: t.TempDir(), Site: "hub", Gateway: "north-0", Incarnation: "one"}); err != nil {
		t.Fatal(err)
	}
	if l.notices, err = stream.NewCommitter(l.nats.Connect(t), stream.CommitterConfig{Stream: wire.NoticeStream("hub")}); err != nil {
		t.Fatal(err)
	}
	l.Archive = New(Config{
		Site: "hub", Gateway: "north-0", Incarnation: "one", Objects: through, Pool: l.pool, Ledger: l.ledger,
		Announcer: announce.New(announce.Config{Site: "hub", Gateway: "north-0", Incarnation: "one", Notices: l.notices}),
		Logger:    slog.New(slog.DiscardHandler), Metrics: l.metrics, Patience: patience,
	})
	l.camera, err = intake.NewInstrument(wire.InstrumentEntry{Instrument: "camera", MaxObjectSize: 1 << 30, MaxConnections: 1, MediaType: "image/jpeg"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
		defer cancel()
		l.Wait(ctx)
		if s := l.pool.Stats(); s.MemoryUsed != 0 || s.ScratchUsed != 0 {
			t.Errorf("at the end the pool holds %+v", s)
		}
		_ = l.notices.Close(ctx)
	})
	return l
}

// claimNames has objects claim their names, from the next incarnation on.
func (l *lab) claimNames(t *testing.T) {
	t.Helper()
	js := l.nats.JetStream(t)
	kv, err := js.KeyValue(t.Context(), wire.NamesBucket("hub"))
	if err == nil { // as the archivist says of a Site without names
		_, err = kv.PutString(t.Context(), wire.NamesListedKey, "{}")
	}
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Names = names.New(names.Config{Site: "hub", JetStream: js, Logger: slog.New(slog.DiscardHandler)})
}

// receive feeds an object as a connection would; an error is Space's.
func (l *lab) receive(t *testing.T, data []byte) (*Object, error) {
	t.Helper()
	o := l.Begin(l.camera, netip.MustParseAddrPort("192.0.2.7:4000"), func() {})
	for len(data) > 0 {
		space, err := o.Space(t.Context())
		if err != nil {
			return o, err
		}
		n := copy(space, data)
		o.Advance(space, n)
		data = data[n:]
		if o.Asked() {
			if err := o.Yield(); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// send receives an object whole and commits it, or aborts it for the cause of its error.
func (l *lab) send(t *testing.T, data []byte) error {
	t.Helper()
	o, err := l.receive(t, data)
	if err != nil {
		o.Abort(CauseOf(err))
		return err
	}
	_, _, err = o.Commit(t.Context())
	return err
}

func (l *lab) mustCommit(t *testing.T, data []byte) wire.Receipt {
	t.Helper()
	o, err := l.receive(t, data)
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := o.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (wire.Receipt{Digest: sha256.Sum256(data), Bytes: int64(len(data))}); r != want {
		t.Fatalf("receipt %+v, want %+v", r, want)
	}
	return r
}

func (l *lab) totals() wire.Totals {
	return l.ledger.Totals("camera", wire.DayOf(time.Now()))
}

func (l *lab) keys(t *testing.T, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range l.objects.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// bytesOf returns the bytes at the place that a record names.
func (l *lab) bytesOf(t *testing.T, r wire.Record) []byte {
	t.Helper()
	part := objectstore.All
	if r.InPack() {
		part = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := l.objects.Get(t.Context(), r.Key, part)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// checkArchive compares every notice with the bytes that it refers to, and returns what is
// announced by digest. Nothing else may be in the archive, except packs that are to be reported as
// failed.
func (l *lab) checkArchive(t *testing.T) map[wire.Digest]int {
	t.Helper()
	found, ids := map[wire.Digest]int{}, map[string]bool{}
	for _, n := range l.noticesIn(t) {
		if ids[n.ID] {
			t.Errorf("%s is announced twice", n.ID)
		}
		ids[n.ID] = true
		found[n.Digest]++
		if got := wire.Digest(sha256.Sum256(l.bytesOf(t, n.Record))); got != n.Digest {
			t.Errorf("%s: the bytes have digest %s, want %s", n.ID, got, n.Digest)
		}
	}
	for _, key := range l.keys(t, "o/") {
		if !ids[key] {
			t.Errorf("%s is stored and not announced", key)
		}
	}
	await(t, "all that lies in packs is announced, or its pack is reported", func() (bool, string) {
		left := l.unannounced(t, ids)
		return len(left) == 0, fmt.Sprint(left)
	})
	return found
}

// unannounced returns the IDs of the members of packs that are not among those that were announced, except for packs that are reported as
// failed or are to be.
func (l *lab) unannounced(t *testing.T, announced map[string]bool) (left []string) {
	t.Helper()
	failed := slices.Concat(l.packers.failed.list(), l.reportedPacks(t)) // in this order: one moves from there to here
	for _, key := range l.keys(t, "packs/") {
		if slices.Contains(failed, key) {
			continue
		}
		info, err := l.objects.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for m, err := range pack.Members(t.Context(), l.objects, key, info.Size) {
			if err != nil {
				t.Fatal(err)
			}
			if !announced[m.ID] {
				left = append(left, m.ID)
			}
		}
	}
	return left
}

// reportedPacks are those that the gateway reported as failed.
func (l *lab) reportedPacks(t *testing.T) []string {
	t.Helper()
	key := wire.FailedPacksKey(l.cfg.Gateway)
	value, _, err := stream.Newest(t.Context(), l.nats.JetStream(t), wire.StatusBucket("hub"), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	report, err := wire.DecodeFailedPacks(key, value)
	if err != nil {
		t.Fatal(err)
	}
	return report.Packs
}

// noticesIn returns the notices that the stream holds.
func (l *lab) noticesIn(t *testing.T) []wire.Notice {
	t.Helper()
	s, err := l.nats.JetStream(t).Stream(t.Context(), wire.NoticeStream("hub"))
	if err != nil {
		t.Fatal(err)
	}
	var all []wire.Notice
	for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
		m, err := s.GetMsg(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.Decode[wire.Notice](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// announced returns how many notices the stream holds.
func (l *lab) announced(t *testing.T) uint64 {
	t.Helper()
	s, err := l.nats.JetStream(t).Stream(t.Context(), wire.NoticeStream("hub"))
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func random(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// cuttable is a wire to a server. It swallows the answers to the next requests that hold
// a word, and closes their connections.
type cuttable struct {
	net.Listener
	server string

	mu      sync.Mutex
	word    string
	left    int
	swallow atomic.Int64
}

func newCuttable(t *testing.T, server string) *cuttable {
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &cuttable{Listener: l, server: u.Host}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.carry(conn)
		}
	}()
	return c
}

// loseAnswers makes the wire swallow the answers to the next n requests whose
// bytes hold word.
func (c *cuttable) loseAnswers(word string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.word, c.left = word, n
}

func (c *cuttable) lost() int64 { return c.swallow.Load() }

func (c *cuttable) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer server.Close()
	var cut atomic.Bool
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if n > 0 && c.matches(buf[:n]) {
				cut.Store(true)
			}
			if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
				server.Close()
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if cut.Load() && n > 0 {
			c.swallow.Add(1)
			return
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (c *cuttable) matches(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 && bytes.Contains(b, []byte(c.word)) {
		c.left--
		return true
	}
	return false
}

func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}
