// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// endpointsLab is a Site with a gateway, to which each instrument has sent an object, and
// a feed server in this process.
type endpointsLab struct {
	t      *testing.T
	server *server
	bucket string
	port   int // to which the objects were sent
	sent   time.Time
	store  objectstore.Store
	js     jetstream.JetStream
	// objects are the objects that were sent.
	objects []sentObject
}

type sentObject struct {
	instrument, name string
	digest           [sha256.Size]byte
}

// pathOf is the path of the first object of an instrument.
func pathOf(instrument string) string {
	return "/archive/" + instrument + "/n/of-" + instrument + ".csv"
}

func newEndpointsLab(t *testing.T, change ...func(*Config)) *endpointsLab {
	t.Helper()
	nats, minio := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}), testenv.SharedMinIO(t, testenv.MinIOOptions{})
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	l := &endpointsLab{t: t, bucket: testenv.BucketName(), port: testenv.FreePort(t)}
	l.store, l.js = minio.Bucket(t, l.bucket), js
	registry := l.registry()
	testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: l.bucket, Instruments: registry.Instruments})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: l.bucket})
	nats.Declare(t, "hub", registry)
	l.sent = time.Now().UTC()
	for instrument, value := range values {
		send := l.send
		if wire.IsGuest(instrument) {
			send = l.pull
		}
		send(instrument, "of-"+instrument+".csv", fmt.Sprintf("%s,%s\n", l.sent.Format(time.RFC3339), value))
	}
	l.announceRolledOver()
	l.start(nats, minio, change...)
	return l
}

// registry is what the operator would write.
func (l *endpointsLab) registry() testenv.Registry {
	entry := func(name string, access wire.AccessEntry) wire.InstrumentEntry {
		return wire.InstrumentEntry{
			UID: name, Generation: 1, Instrument: name, Gateway: "north", MaxObjectSize: 8 << 20, MaxConnections: 8, Acknowledge: "Stored",
			MediaType: "text/csv", CadenceMillis: 60_000, RepeatWindowMillis: 60_000, SegmentAgeMillis: 60_000, SegmentSize: 1 << 20, Access: &access, Aliases: []string{"old/" + name + "/{name}"},
			Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP, Port: uint16(l.port), IdleTimeoutMillis: 60_000, MaxAgeMillis: 60_000, UploadExpiryMillis: 60_000}},
			Channels: []wire.ChannelEntry{{
				Name: "values", Suffix: ".csv", Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
				Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Columns: []int{1}, Format: wire.TimeISO8601, Precision: wire.PrecisionSeconds,
					Location: "begin", MaxDelayMillis: 172_800_000},
				Parameters: []wire.ParameterEntry{{Name: "field", Type: "Double", Column: 2}},
			}},
		}
	}
	token := func(name string) []wire.TokenHash {
		return []wire.TokenHash{wire.HashToken([]byte(name), name+"-token")}
	}
	consumer := func(name, delivery string, instruments ...string) wire.ConsumerEntry {
		return wire.ConsumerEntry{UID: name, Consumer: name, Feed: "all", Flow: wire.FlowEntry{Mode: wire.FlowAll}, Delivery: delivery, Instruments: instruments, Tokens: token(name)}
	}
	named := consumer(namesake, wire.DeliveryServerSentEvents, open)
	named.Consumer = insider
	restricted := wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted, Readers: []string{insider}}
	embargo := wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, Readers: []string{insider}, EmbargoMillis: (1000 * 24 * time.Hour).Milliseconds()}
	authenticated := wire.AccessEntry{Live: wire.AccessAuthenticated, Archive: wire.AccessAuthenticated}
	everybody := wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	guest := func(name string, access wire.AccessEntry) wire.GuestEntry {
		origin, instrument, _ := wire.ParseGuestName(name)
		return wire.GuestEntry{Origin: origin, Instrument: instrument, Partner: origin, SaidAt: l.sent, MediaType: "text/csv", Access: &access,
			Rights: &wire.RightsEntry{License: "CC-BY-4.0", Credit: "Image: " + origin}}
	}
	// Its readers there have no rights here, whatever their names are.
	guests := []wire.GuestEntry{guest(guestHidden, restricted), guest(guestFresh, embargo), guest(guestOpen, everybody)}
	return testenv.Registry{
		Revision: 2, Guests: guests,
		Instruments: []wire.InstrumentEntry{entry(hidden, restricted), entry(fresh, embargo), entry(members, authenticated), entry(open, everybody)},
		Feeds: []wire.FeedEntry{
			{UID: "all", Feed: "all", Notices: wire.NoticeStream("hub"), Telemetry: wire.ObservationStream("hub"), Instruments: []string{wire.AllInstruments}},
			{UID: "only-members", Feed: "only-members", Notices: wire.NoticeStream("hub"), Instruments: []string{members}},
		},
		Consumers: []wire.ConsumerEntry{consumer("ws", wire.DeliveryWebSocket, hidden), consumer("events", wire.DeliveryServerSentEvents, hidden),
			consumer("ws-of-all", wire.DeliveryWebSocket), consumer("events-of-all", wire.DeliveryServerSentEvents), consumer(member, wire.DeliveryServerSentEvents, members), named},
		Readers: []wire.ReaderEntry{{Reader: insider, Tokens: token(insider)}, {Reader: outsider, Tokens: token(outsider)}},
	}
}

func (l *endpointsLab) send(instrument, name, body string) sentObject {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodPut, fmt.Sprintf("http://127.0.0.1:%d/in/%s/%s", l.port, instrument, name), strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		said, _ := io.ReadAll(resp.Body)
		l.t.Fatalf("PUT to %s: %s: %s", instrument, resp.Status, said)
	}
	o := sentObject{instrument, name, sha256.Sum256([]byte(body))}
	l.objects = append(l.objects, o)
	return o
}

// pull stores and announces an object of another Site as a gateway does that a mirror brings it to.
func (l *endpointsLab) pull(guest, name, body string) sentObject {
	l.t.Helper()
	site, instrument, _ := wire.ParseGuestName(guest)
	origin := wire.Origin{Site: site, ID: wire.NamedKey(site, instrument, name, 1)}
	o := sentObject{guest, name, sha256.Sum256([]byte(body))}
	r := wire.Record{
		Origin: &origin, Path: "n/" + name, Size: int64(len(body)), Digest: o.digest, State: wire.StateCurrent, ReceivedAt: time.Now().UTC(),
		TimeSource: wire.TimeSourceReceived, MediaType: "text/csv", Gateway: "north-0", Incarnation: "one", Backfill: true,
	}
	if guest == guestFresh {
		at := l.rolledBack()
		r.ObservedFrom, r.ObservedTo, r.TimeSource = &at, &at, wire.TimeSourceName
	}
	r.Key = origin.ObjectID("hub", guest, r.ReceivedAt, r.Digest)
	r.ID = r.Key
	l.announce(guest, r, body)
	l.objects = append(l.objects, o)
	return o
}

// rolledOver is an object of fresh whose clock counts GPS weeks wrongly.
const rolledOver = "of-fresh-rolled-over.csv"

// rolledBack is when an object was observed by a clock that is 1024 weeks behind.
func (l *endpointsLab) rolledBack() time.Time {
	return l.sent.AddDate(0, 0, -7*1024).Truncate(time.Second)
}

// announceRolledOver stores and announces rolledOver as a writer does that believes its payload.
func (l *endpointsLab) announceRolledOver() {
	l.t.Helper()
	at := l.rolledBack()
	body := fmt.Sprintf("%s,%s\n", at.Format(time.RFC3339), values[fresh])
	o := sentObject{fresh, rolledOver, sha256.Sum256([]byte(body))}
	r := wire.Record{
		Path: "n/" + rolledOver, Size: int64(len(body)), Digest: o.digest, State: wire.StateCurrent, ReceivedAt: time.Now().UTC(), ObservedFrom: &at, ObservedTo: &at,
		TimeSource: wire.TimeSourcePayload, MediaType: "text/csv", Gateway: "north-0", Incarnation: "one",
	}
	r.Key = wire.RawKey("hub", fresh, r.ReceivedAt, r.Digest)
	r.ID = r.Key
	l.announce(fresh, r, body)
	l.objects = append(l.objects, o)
}

// announce stores and announces an object.
func (l *endpointsLab) announce(instrument string, r wire.Record, body string) {
	l.t.Helper()
	m, err := stream.NoticeMessage(wire.Notice{Site: "hub", Instrument: instrument, Record: r}, r.Gateway)
	if err == nil {
		err = l.store.Put(l.t.Context(), r.Key, strings.NewReader(body), r.Size, objectstore.PutOptions{})
	}
	if err == nil {
		_, err = l.js.PublishMsg(l.t.Context(), m)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// start runs the feed server.
func (l *endpointsLab) start(nats *testenv.NATSServer, minio *testenv.MinIOServer, change ...func(*Config)) {
	l.t.Helper()
	secrets := testenv.CredentialsDir(l.t, minio.Root())
	var log bytes.Buffer
	cfg := Config{
		Site: "hub", Pod: "feed-server-0", Listen: "127.0.0.1:0", ListenHTTP: "127.0.0.1:0", NATS: stream.Config{Servers: []string{nats.URL()}},
		Objects: objectstore.Config{Endpoint: minio.URL(), Bucket: l.bucket, CredentialsDir: secrets}, Limits: endpoint.DefaultLimits(), Readers: 4,
		RsyncAddress: "127.0.0.1:0", RsyncWindow: time.Hour,
		DrainTimeout: time.Second, LogLevel: "info", Log: &log,
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := newServer(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	alive, end := context.WithCancel(context.Background())
	if err := s.open(ctx, alive); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, alive, end) }()
	l.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		if l.t.Failed() {
			l.t.Log(log.String())
		}
	})
	l.server = s
	// A token that is not known yet would count as a wrong one.
	testenv.Await(l.t, "the registry is followed", func() bool { return s.registry.Snapshot().Revision > 0 })
	l.until("/robots.txt", 200)
}

// until asks, as the insider, until an answer has a status.
func (l *endpointsLab) until(path string, want int) {
	l.t.Helper()
	status, body := 0, ""
	for range testenv.Attempts() {
		if status, body = l.ask(http.MethodGet, path, insider); status == want {
			return
		}
	}
	l.t.Fatalf("%s: %d at last, not %d: %s", path, status, want, body)
}

// untilShows asks, as the insider, until an answer holds a text.
func (l *endpointsLab) untilShows(path, want string) {
	l.t.Helper()
	body := ""
	for range testenv.Attempts() {
		if _, body = l.ask(http.MethodGet, path, insider); strings.Contains(body, want) {
			return
		}
	}
	l.t.Fatalf("%s at last: %s", path, body)
}

// request asks at an endpoint. The caller reads the answer to its end.
func (l *endpointsLab) request(ctx context.Context, method, path, who string) *http.Response {
	l.t.Helper()
	r := l.newRequest(ctx, method, path)
	if who != anonymous {
		r.SetBasicAuth("", who+"-token")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp
}

// newRequest is one for a path, and what is posted there behind a line break.
func (l *endpointsLab) newRequest(ctx context.Context, method, path string) *http.Request {
	l.t.Helper()
	path, question, _ := strings.Cut(path, "\n")
	r, err := http.NewRequestWithContext(ctx, method, "http://"+l.address()+path, strings.NewReader(question))
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

func (l *endpointsLab) address() string {
	address := l.server.endpoints.Address()
	return net.JoinHostPort("127.0.0.1", address[strings.LastIndexByte(address, ':')+1:])
}

// ask returns the status of an answer and its whole uncompressed body; use follow for a live
// answer.
func (l *endpointsLab) ask(method, path, who string) (int, string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), testenv.Patience)
	defer cancel()
	resp := l.request(ctx, method, path, who)
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	switch resp.Header.Get("Content-Type") {
	case "text/event-stream":
		return resp.StatusCode, ""
	case "application/zstd":
		z, err := zstd.NewReader(body)
		if err != nil {
			l.t.Fatal(err)
		}
		defer z.Close()
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		l.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, string(text)
}
