// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// The instruments of the test: hidden is Restricted to the reader insider, fresh is
// everybody's after an embargo that has not ended, open is everybody's now.
const (
	hidden = "hidden"
	fresh  = "fresh"
	open   = "open"
)

// who asks.
const (
	stranger = "stranger"
	outsider = "outsider"
	insider  = "insider"
)

// ask is one request at a door, and what strangers, readers in general and the insider
// are answered. Where shows is set, it tells of an instrument in the answers of those
// who may read it, and in no others.
type ask struct {
	path                        string
	stranger, outsider, insider int
	shows                       string
}

// asks are all doors that a feed server has. One that is new must say here what it
// answers.
var asks = map[string][]ask{
	"/archive/": {
		{"/archive/", 200, 200, 200, ">" + hidden},
		{"/archive/hidden/", 401, 403, 200, "n/"},
		{"/archive/hidden/n/", 401, 403, 200, "hello"},
		{"/archive/hidden/n/hello.csv", 401, 403, 200, secret},
		{"/archive/hidden/n/none", 401, 403, 404, secret + "?"},
		{"/archive/fresh/n/hello.csv", 404, 404, 200, secret},
		{"/archive/fresh/n/?format=json", 404, 404, 200, "hello"},
	},
	"/robots.txt":                    {{"/robots.txt", 200, 200, 200, ""}},
	"/sitemap.xml":                   {{"/sitemap.xml", 200, 200, 200, ""}},
	"/sitemaps/{instrument}":         {{"/sitemaps/hidden.xml", 404, 404, 404, ""}, {"/sitemaps/open.xml", 200, 200, 200, ""}},
	"/legacy/":                       {{"/legacy/127.0.0.1/$port/$today", 200, 200, 200, secret}},
	"/":                              {{"/old/hidden/hello.csv", 401, 403, 200, secret}, {"/old/fresh/hello.csv", 404, 404, 200, secret}, {"/", 404, 404, 404, ""}},
	"/latest/{instrument}":           {{"/latest/hidden", 401, 403, 200, secret}, {"/latest/fresh", 404, 404, 200, secret}, {"/latest/open", 200, 200, 200, ""}},
	"/latest/{instrument}/events":    {{"/latest/hidden/events", 401, 403, 200, ""}, {"/latest/fresh/events", 404, 404, 200, ""}},
	"/bundle/{file}":                 {{"/bundle/hidden.tar", 401, 403, 200, secret}, {"/bundle/fresh.tar", 200, 200, 200, secret}, {"/bundle/open.tar", 200, 200, 200, ""}},
	"/bundle.tar":                    {{"/bundle.tar?instrument=open&instrument=hidden", 401, 403, 200, secret}},
	"/bundle.tar.zst":                {{"/bundle.tar.zst?instrument=open&instrument=hidden", 401, 403, 200, ""}},
	"/atom/{file}":                   {{"/atom/hidden.xml", 401, 403, 200, "hello"}, {"/atom/fresh.xml", 200, 200, 200, "hello"}},
	"/atom/feeds/{file}":             {{"/atom/feeds/all.xml", 200, 200, 200, hidden}},
	"/wis2/{feed}/events":            {{"/wis2/all/events", 200, 200, 200, ""}},
	"/hapi":                          {{"/hapi", 200, 200, 200, ""}},
	"/hapi/":                         {{"/hapi/catalog", 200, 200, 200, hidden}, {"/hapi/info?dataset=hidden/values", 401, 403, 200, "field"}, {"/hapi/data?dataset=hidden/values&start=$start&stop=$stop", 401, 403, 200, secret}, {"/hapi/data?dataset=fresh/values&start=$start&stop=$stop", 400, 400, 200, secret}, {"/hapi/info?dataset=fresh/values", 200, 200, 200, ""}},
	"GET /feeds/{feed}/ws":           {{"/feeds/all/ws?consumer=ws", 401, 403, 426, ""}},
	"GET /feeds/{feed}/events":       {{"/feeds/all/events?consumer=events", 401, 403, 200, ""}},
	"POST /feeds/{feed}/tickets":     {{"/feeds/all/tickets?consumer=events", 401, 403, 201, ""}},
	"POST /feeds/{feed}/sampling":    {{"/feeds/all/sampling?consumer=events", 401, 403, 403, ""}},
	"DELETE /feeds/{feed}/sampling":  {{"/feeds/all/sampling?consumer=events", 401, 403, 403, ""}},
	"OPTIONS /feeds/{feed}/tickets":  {{"/feeds/all/tickets", 204, 204, 204, ""}},
	"OPTIONS /feeds/{feed}/events":   {{"/feeds/all/events", 204, 204, 204, ""}},
	"OPTIONS /feeds/{feed}/sampling": {{"/feeds/all/sampling", 204, 204, 204, ""}},
}

// secret is in what hidden and fresh sent, and open did not.
const secret = "48123.5"

// Each door that there is tells everybody what they may know, and nobody more.
func TestEveryDoor(t *testing.T) {
	t.Parallel()
	l := newDoorsLab(t)
	var known []string
	for pattern := range asks {
		known = append(known, pattern)
	}
	slices.Sort(known)
	if are := l.server.doors.Doors(); !slices.Equal(are, known) {
		t.Fatalf("there are doors\n%q\nthis test knows\n%q", are, known)
	}
	// The manifest's writer lists the last that came: then all is there.
	l.until("/archive/hidden/n/hello.csv", 200)
	l.until("/archive/fresh/n/hello.csv", 200)
	for pattern, all := range asks {
		method, _, found := strings.Cut(pattern, " ")
		if !found {
			method = http.MethodGet
		}
		for _, a := range all {
			l.check(method, a)
		}
	}
	// The gateway archives what instruments say of their data, and info tells it.
	l.untilShows("/hapi/info?dataset="+hidden+"/values", `"x_generations":[{"from":"`)
}

// check asks as everybody.
func (l *doorsLab) check(method string, a ask) {
	l.t.Helper()
	path := strings.NewReplacer("$port", fmt.Sprint(l.port), "$today", l.sent.Format("2006/01/02"),
		"$start", l.sent.Add(-time.Minute).Format(time.RFC3339), "$stop", l.sent.Add(time.Minute).Format(time.RFC3339)).Replace(a.path)
	for _, c := range []struct {
		who  string
		want int
	}{{stranger, a.stranger}, {outsider, a.outsider}, {insider, a.insider}} {
		status, body := l.ask(method, path, c.who)
		if status != c.want {
			l.t.Errorf("%s %s, %s: %d, want %d: %.300s", method, path, c.who, status, c.want, body)
		}
		if a.shows != "" && a.insider == 200 && strings.Contains(body, a.shows) != (c.who == insider) {
			l.t.Errorf("%s %s, %s: tells of %q, or fails to: %.300s", method, path, c.who, a.shows, body)
		}
		if c.who != insider && strings.Contains(body, secret) {
			l.t.Errorf("%s %s, %s: has what was sent: %.300s", method, path, c.who, body)
		}
	}
}

// doorsLab is a Site with a gateway, to which each instrument has sent an object, and
// a feed server in this process.
type doorsLab struct {
	t      *testing.T
	server *server
	port   int // to which the objects were sent
	sent   time.Time
}

func newDoorsLab(t *testing.T) *doorsLab {
	t.Helper()
	nats, minio := parts.NATS(t, parts.NATSOptions{Unsynced: true}), parts.MinIO(t, parts.MinIOOptions{})
	js := nats.JetStream(t)
	parts.CreateSite(t, js, "hub")
	minio.Bucket(t, "archive")
	l := &doorsLab{t: t, port: parts.FreePort(t)}
	registry := l.registry()
	parts.StartGateway(t, parts.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: "archive", Flags: []string{"--part-interval", "500ms"}, Instruments: registry.Instruments})
	nats.Declare(t, "hub", registry)
	l.sent = time.Now().UTC()
	for instrument, value := range map[string]string{hidden: secret, fresh: secret, open: "1"} {
		l.send(instrument, fmt.Sprintf("%s,%s\n", l.sent.Format(time.RFC3339), value))
	}
	l.start(nats, minio, js)
	return l
}

// registry is what the operator would write.
func (l *doorsLab) registry() parts.Registry {
	entry := func(name string, access wire.AccessEntry) wire.InstrumentEntry {
		return wire.InstrumentEntry{
			UID: name, Generation: 1, Instrument: name, Gateway: "north", MaxObjectSize: 1 << 20, MaxConnections: 8, Acknowledge: "Stored",
			MediaType: "text/csv", CadenceMillis: 60_000, RepeatWindowMillis: 60_000, SegmentAgeMillis: 60_000, SegmentSize: 1 << 20, Access: &access, Aliases: []string{"old/" + name + "/{name}"},
			Ways: []wire.WayEntry{{Protocol: wire.ProtocolHTTP, Port: uint16(l.port), IdleTimeoutMillis: 60_000, MaxAgeMillis: 60_000, UploadExpiryMillis: 60_000}},
			Channels: []wire.ChannelEntry{{
				Name: "values", Suffix: ".csv", Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
				Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Columns: []int{1}, Format: wire.TimeISO8601, Precision: wire.PrecisionSeconds,
					Location: "begin", MaxDelayMillis: 60_000},
				Parameters: []wire.ParameterEntry{{Name: "field", Type: "Double", Column: 2}},
			}},
		}
	}
	token := func(name string) []wire.TokenHash {
		return []wire.TokenHash{wire.HashToken([]byte(name), name+"-token")}
	}
	consumer := func(name, delivery string) wire.ConsumerEntry {
		return wire.ConsumerEntry{UID: name, Consumer: name, Feed: "all", Flow: wire.FlowEntry{Mode: wire.FlowAll}, Delivery: delivery, Instruments: []string{hidden}, Tokens: token(name)}
	}
	restricted := wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted, Readers: []string{insider}}
	embargo := wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, Readers: []string{insider}, EmbargoMillis: (1000 * 24 * time.Hour).Milliseconds()}
	everybody := wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	return parts.Registry{
		Revision:    2,
		Instruments: []wire.InstrumentEntry{entry(hidden, restricted), entry(fresh, embargo), entry(open, everybody)},
		Feeds:       []wire.FeedEntry{{UID: "all", Feed: "all", Notices: wire.NoticeStream("hub"), Telemetry: wire.ObservationStream("hub"), Instruments: []string{hidden, fresh, open}}},
		Consumers:   []wire.ConsumerEntry{consumer("ws", wire.DeliveryWebSocket), consumer("events", wire.DeliveryServerSentEvents)},
		Readers:     []wire.ReaderEntry{{Reader: insider, Tokens: token(insider)}, {Reader: outsider, Tokens: token(outsider)}},
	}
}

func (l *doorsLab) send(instrument, body string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodPut, fmt.Sprintf("http://127.0.0.1:%d/in/%s/hello.csv", l.port, instrument), strings.NewReader(body))
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
}

// start runs the feed server.
func (l *doorsLab) start(nats *parts.NATSServer, minio *parts.MinIOServer, js jetstream.JetStream) {
	l.t.Helper()
	secrets := l.t.TempDir()
	for file, text := range map[string]string{objectstore.FileAccessKeyID: minio.AccessKeyID, objectstore.FileSecretAccessKey: minio.SecretAccessKey} {
		if err := os.WriteFile(filepath.Join(secrets, file), []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	var log bytes.Buffer
	s, err := newServer(Config{
		Site: "hub", Pod: "feed-server-0", Listen: "127.0.0.1:0", ListenHTTP: "127.0.0.1:0", NATS: stream.Config{Servers: []string{nats.URL()}},
		Objects: objectstore.Config{Endpoint: minio.URL(), Bucket: "archive", CredentialsDir: secrets}, Readers: 4, DrainTimeout: time.Second, LogLevel: "info", Log: &log,
	})
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
	l.until("/robots.txt", 200)
}

// until asks, as the insider, until an answer has a status.
func (l *doorsLab) until(path string, want int) {
	l.t.Helper()
	status, body := 0, ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if status, body = l.ask(http.MethodGet, path, insider); status == want {
			return
		}
	}
	l.t.Fatalf("%s: %d at last, not %d: %s", path, status, want, body)
}

// untilShows asks, as the insider, until an answer holds a text.
func (l *doorsLab) untilShows(path, want string) {
	l.t.Helper()
	body := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, body = l.ask(http.MethodGet, path, insider); strings.Contains(body, want) {
			return
		}
	}
	l.t.Fatalf("%s at last: %s", path, body)
}

// ask returns the status of an answer and its body, as far as it goes in a second.
func (l *doorsLab) ask(method, path, who string) (int, string) {
	l.t.Helper()
	address := l.server.doors.Address()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort("127.0.0.1", address[strings.LastIndexByte(address, ':')+1:])+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if who != stranger {
		r.SetBasicAuth("", who+"-token")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
