// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	camera  = "allsky-1"
	mag     = "mag-1"
	channel = "raw"
	// leaseTTL is short so that a dead archivist's lease soon expires.
	leaseTTL = 2 * time.Second
)

// servers are real ones that the tests of one function share, of S3 all tests that do not stop it.
type servers struct {
	nats  *testenv.NATSServer
	minio *testenv.MinIOServer
}

func start(t *testing.T) servers {
	t.Helper()
	t.Parallel() // they wait more than they work
	return servers{testenv.NATS(t, testenv.NATSOptions{}), testenv.SharedMinIO(t, testenv.MinIOOptions{})}
}

// lab is one Site on them.
type lab struct {
	t     *testing.T
	site  string
	js    jetstream.JetStream
	store objectstore.Store

	mu       sync.Mutex
	settings map[string]wire.InstrumentEntry
	messages int
}

func (s servers) site(t *testing.T, code string) *lab {
	t.Helper()
	l := &lab{t: t, site: code, js: s.nats.JetStream(t), store: s.minio.Bucket(t, testenv.BucketName()),
		settings: map[string]wire.InstrumentEntry{
			camera: {Instrument: camera, RepeatWindowMillis: (24 * time.Hour).Milliseconds()},
			mag:    {Instrument: mag, SegmentAgeMillis: 300, SegmentSize: 1 << 20},
		}}
	testenv.CreateSite(t, l.js, code)
	t.Cleanup(func() { // gives the disk back that is reserved for it
		for _, name := range []string{wire.ObservationStream(code), wire.NoticeStream(code)} {
			_ = l.js.DeleteStream(context.WithoutCancel(t.Context()), name)
		}
	})
	l.leaseTTL()
	return l
}

// nextEpoch waits until a stream that is made has another epoch than one that was made before: an epoch is a millisecond.
func nextEpoch() { time.Sleep(2 * time.Millisecond) }

func (l *lab) leaseTTL() {
	l.t.Helper()
	_, err := l.js.CreateOrUpdateKeyValue(l.t.Context(), jetstream.KeyValueConfig{
		Bucket: wire.LeaseBucket(l.site), TTL: leaseTTL, History: 1, Storage: jetstream.FileStorage})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) setting(instrument string) (wire.InstrumentEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.settings[instrument]
	return e, ok
}

func (l *lab) config(gateway string) Config {
	return Config{
		Site: l.site, Pod: gateway, Incarnation: gateway + "-1", JetStream: l.js, Store: l.store, Settings: l.setting,
		PartInterval: 150 * time.Millisecond, SweepInterval: 300 * time.Millisecond, SweepAge: time.Millisecond,
		ScratchDir: l.t.TempDir(), Log: slog.New(slog.NewTextHandler(testWriter{l.t}, nil)).With("gateway", gateway),
		Metrics: prometheus.NewRegistry(),
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// run runs an archivist until stop is called or the test ends.
func (l *lab) run(cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := Run(ctx, cfg); err != nil {
			l.t.Errorf("archivist %s: %v", cfg.Pod, err)
		}
	}()
	stop = func() { cancel(); <-done }
	l.t.Cleanup(stop)
	return stop
}

// object is what a camera sent.
type object struct {
	at   time.Time
	body string
}

func (l *lab) notice(instrument string, o object) wire.Notice {
	digest := wire.Digest(sha256.Sum256([]byte(o.body)))
	key := wire.RawKey(l.site, instrument, o.at, digest)
	return wire.Notice{Site: l.site, Instrument: instrument, Record: wire.Record{
		ID: key, Key: key, Size: int64(len(o.body)), Digest: digest, State: wire.StateCurrent, MediaType: "image/fits",
		ReceivedAt: o.at.UTC(), TimeSource: wire.TimeSourceReceived, Source: "192.0.2.7:40001", Gateway: "gateway-0", Incarnation: "incarnation-1"}}
}

// putObject stores an object as a gateway does.
func (l *lab) putObject(instrument string, o object) wire.Notice {
	l.t.Helper()
	n := l.notice(instrument, o)
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		l.t.Fatal(err)
	}
	err = l.store.Put(l.t.Context(), n.Key, strings.NewReader(o.body), n.Size, objectstore.PutOptions{
		ContentType: n.MediaType, Metadata: metadata, Digest: n.Digest, CreateOnly: true})
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l *lab) announce(n wire.Notice) {
	l.t.Helper()
	m, err := stream.NoticeMessage(n, "gateway-0")
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.js.PublishMsg(l.t.Context(), m); err != nil {
		l.t.Fatal(err)
	}
}

// send stores and announces an object.
func (l *lab) send(instrument string, at time.Time, body string) wire.Notice {
	l.t.Helper()
	n := l.putObject(instrument, object{at, body})
	l.announce(n)
	return n
}

// telemetry publishes a message of so many datagrams, whose payloads are numbered.
func (l *lab) telemetry(instrument string, at time.Time, datagrams int) {
	l.t.Helper()
	l.mu.Lock()
	number := l.messages
	l.messages++
	l.mu.Unlock()
	l.publishTelemetry(instrument, at, datagrams, fmt.Sprintf("gateway-0/incarnation-1/%d", number), number)
}

func (l *lab) publishTelemetry(instrument string, at time.Time, datagrams int, id string, number int) {
	l.t.Helper()
	data := wire.AppendTelemetryHeader(nil, instrument, channel)
	size := 0
	for i := range datagrams {
		payload := binary.BigEndian.AppendUint64(nil, uint64(number)<<16|uint64(i))
		source := netip.MustParseAddrPort("192.0.2.7:40001")
		if i%2 == 1 {
			source = netip.MustParseAddrPort("[2001:db8::7]:40002")
		}
		data = wire.AppendDatagram(data, wire.Datagram{ReceivedAt: at.Add(time.Duration(i)), Source: source, DestinationPort: 30101, Payload: payload})
		size += len(payload)
	}
	m := nats.NewMsg(wire.ObservationSubject(l.site, instrument, channel))
	m.Data = data
	m.Header.Set(wire.HeaderID, id)
	m.Header.Set(wire.HeaderTime, wire.FormatTime(at))
	m.Header.Set(wire.HeaderFormat, "1")
	m.Header.Set(wire.HeaderDatagrams, fmt.Sprint(datagrams))
	m.Header.Set(wire.HeaderDatagramBytes, fmt.Sprint(size))
	if _, err := l.js.PublishMsg(l.t.Context(), m); err != nil {
		l.t.Fatal(err)
	}
}

// listed returns what the manifests list of an instrument, duplicates included,
// sorted by key; nothing may stand there twice.
func (l *lab) listed(instrument string) []wire.Record {
	l.t.Helper()
	var all []wire.Record
	for day, err := range manifest.Days(l.t.Context(), l.store, l.site, instrument) {
		if err != nil {
			l.t.Fatal(err)
		}
		for r, err := range manifest.Records(l.t.Context(), l.store, l.site, instrument, day) {
			if err != nil {
				l.t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b wire.Record) int { return strings.Compare(a.Key, b.Key) })
	for i := 1; i < len(all); i++ {
		if all[i].ID == all[i-1].ID {
			l.t.Errorf("%s is listed twice", all[i].ID)
		}
	}
	return all
}

// keys returns the IDs of the listed objects in a state.
func (l *lab) keys(instrument string, state wire.State) []string {
	var keys []string
	for _, r := range l.listed(instrument) {
		if r.State == state {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// stored returns the keys in the bucket under an instrument's prefix.
func (l *lab) stored(instrument string) []string {
	l.t.Helper()
	var keys []string
	for info, err := range l.store.List(l.t.Context(), wire.InstrumentPrefix(l.site, instrument), "") {
		if err != nil {
			l.t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// datagrams returns the numbers of all datagrams in the listed segments, in order.
func (l *lab) datagrams(instrument string) []uint64 {
	l.t.Helper()
	segments := l.listed(instrument)
	slices.SortFunc(segments, func(a, b wire.Record) int { // the epochs of a recreated stream ascend
		return cmp.Or(strings.Compare(a.Segment.Epoch, b.Segment.Epoch), cmp.Compare(a.Segment.First, b.Segment.First))
	})
	var numbers []uint64
	var last uint64
	var epoch string
	for _, r := range segments {
		if r.Segment.Epoch == epoch && r.Segment.First <= last {
			l.t.Errorf("segment %s overlaps the one before it", r.Key)
		}
		epoch, last = r.Segment.Epoch, r.Segment.Last
		found := l.readSegment(r)
		if uint64(len(found)) != r.Segment.Datagrams {
			l.t.Errorf("%s holds %d datagrams, its record says %d", r.Key, len(found), r.Segment.Datagrams)
		}
		numbers = append(numbers, found...)
	}
	return numbers
}

func (l *lab) body(r wire.Record) []byte {
	l.t.Helper()
	body, _, err := l.store.Get(l.t.Context(), r.Key, objectstore.All)
	if err != nil {
		l.t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		l.t.Fatal(err)
	}
	if wire.Digest(sha256.Sum256(data)) != r.Digest {
		l.t.Errorf("%s has another digest than its record", r.Key)
	}
	return data
}

func (l *lab) readSegment(r wire.Record) []uint64 {
	l.t.Helper()
	ng, err := pcapgo.NewNgReader(bytes.NewReader(l.body(r)), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		l.t.Fatal(err)
	}
	var numbers []uint64
	for {
		data, _, err := ng.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return numbers
		}
		if err != nil {
			l.t.Fatal(err)
		}
		udp, ok := gopacket.NewPacket(data, ng.LinkType(), gopacket.Default).Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok || len(udp.Payload) != 8 {
			l.t.Fatalf("%s holds a packet that is no datagram of ours", r.Key)
		}
		numbers = append(numbers, binary.BigEndian.Uint64(udp.Payload))
	}
}

// ledger returns the archivist's totals of a step.
func (l *lab) ledger(instrument string, day wire.Day, step wire.Step) wire.Totals {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.LedgerBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.LedgerKey(instrument, day, step, wire.ArchivistWriter))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.Totals{}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return entry.Sum()
}

// await waits until a condition holds.
func (l *lab) await(what string, holds func() bool) {
	l.t.Helper()
	testenv.Await(l.t, what, holds)
}
