// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
)

// storm is a time long ago.
var storm = time.Date(2015, 3, 17, 12, 0, 0, 123456789, time.UTC)

// lab is an archive in a real bucket, behind the endpoints.
type lab struct {
	t         testing.TB
	minio     *testenv.MinIOServer
	bucket    objectstore.Store
	gets      atomic.Int64 // of the endpoints
	catalog   *shelf
	snapshot  registry.Snapshot
	metrics   *prometheus.Registry
	log       log
	endpoints http.Handler
	url       string
}

// config is the configuration of a lab's archive and of its access check.
type config struct {
	archive.Config
	endpoint endpoint.AccessCheckConfig
}

// newLab has a public camera, and what else is declared; each reader's token is the
// name and "-token". Its bucket is one of the S3 server that tests share.
func newLab(t testing.TB, change func(*config), more ...wire.InstrumentEntry) *lab {
	t.Helper()
	return newLabOn(t, testenv.SharedMinIO(t, testenv.MinIOOptions{}), change, more...)
}

func newLabOn(t testing.TB, minio *testenv.MinIOServer, change func(*config), more ...wire.InstrumentEntry) *lab {
	t.Helper()
	l := &lab{t: t, minio: minio, catalog: &shelf{records: map[string][]wire.Record{}},
		metrics: prometheus.NewRegistry()}
	l.bucket = l.minio.Bucket(t, testenv.BucketName())
	l.snapshot = registry.Snapshot{Revision: 1, Instruments: map[string]wire.InstrumentEntry{}, Readers: map[string]wire.ReaderEntry{}}
	for _, in := range append([]wire.InstrumentEntry{{
		Instrument: camera, UID: "camera", Generation: 1, MediaType: "image/jpeg", CadenceMillis: 10_000,
		Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic},
		Rights: &wire.RightsEntry{License: "CC-BY-4.0", DOI: "10.5555/thule", Citation: "Thule <2026>", Credit: "Image: Thule"},
	}}, more...) {
		l.snapshot.Instruments[in.Instrument] = in
	}
	for _, name := range []string{"uni", "other"} {
		l.snapshot.Readers[name] = wire.ReaderEntry{Reader: name, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), name+"-token")}}
	}
	quiet := slog.New(slog.DiscardHandler)
	cfg := config{
		Config:   archive.Config{Site: site, Catalog: l.catalog, Store: counted{l.bucket, &l.gets}, Logger: quiet, Metrics: l.metrics},
		endpoint: endpoint.AccessCheckConfig{Registry: func() *registry.Snapshot { return &l.snapshot }, Logger: quiet, Metrics: l.metrics},
	}
	if change != nil {
		change(&cfg)
	}
	cfg.AccessCheck = endpoint.NewAccessCheck(cfg.endpoint)
	mux := http.NewServeMux()
	for pattern, serve := range archive.New(cfg.Config).Endpoints() {
		mux.HandleFunc(pattern, serve)
	}
	l.endpoints = mux
	server := httptest.NewServer(l.log.of(mux))
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// put stores an object, and lists it under a path.
func (l *lab) put(instrument, name, body string, change ...func(*wire.Record)) wire.Record {
	l.t.Helper()
	digest := wire.Digest(sha256.Sum256([]byte(body)))
	r := wire.Record{
		Path: name, Size: int64(len(body)), Digest: digest, State: wire.StateCurrent, ReceivedAt: storm, TimeSource: wire.TimeSourceReceived,
		Key: wire.NamedKey(site, instrument, name, 1), Gateway: "gateway-0", Incarnation: "one", Source: "192.0.2.7:40000",
	}
	for _, c := range change {
		c(&r)
	}
	r.ID = cmp.Or(r.ID, r.Key)
	if !r.InPack() {
		l.store(r.Key, body)
	}
	l.catalog.add(instrument, r)
	return r
}

// total is what a counter without labels says.
func (l *lab) total(name string) float64 {
	l.t.Helper()
	all, err := l.metrics.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	l.t.Fatalf("there is no metric %s", name)
	return 0
}

func (l *lab) store(key, body string) {
	l.t.Helper()
	if err := l.bucket.Put(l.t.Context(), key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) remove(key string) {
	l.t.Helper()
	if err := l.bucket.Delete(l.t.Context(), key); err != nil {
		l.t.Fatal(err)
	}
}

// log is what was asked for: "GET 200 /path?query".
type log struct {
	under sync.WaitGroup // requests that are being answered
	mu    sync.Mutex
	lines []string
}

func (l *log) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.under.Add(1)
		defer l.under.Done()
		seen := &status{ResponseWriter: w}
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lines = append(l.lines, fmt.Sprintf("%s %d %s", r.Method, seen.code, r.URL.RequestURI()))
		}()
		next.ServeHTTP(seen, r)
	})
}

// take returns the lines since it was last called. A client may have its answer before
// the line of its request is written, so take waits for the requests under way.
func (l *log) take() []string {
	l.under.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the body
}

var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ask makes a request; headers are name and value in turn.
func (l *lab) ask(method, path string, headers ...string) answer {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method, l.url+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if _, said := r.Header["User-Agent"]; !said {
		r.Header.Set("User-Agent", "Mozilla/5.0 test")
	}
	resp, err := client.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

func (l *lab) get(path string, headers ...string) answer {
	l.t.Helper()
	return l.ask(http.MethodGet, path, headers...)
}

// want fails where an answer has another status, or is no problem document where it
// should be one.
func (a answer) want(t testing.TB, what string, status int) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: %d, want %d: %.300s", what, a.status, status, a.body)
		return
	}
	if status < 400 || a.body == "" {
		return
	}
	var p struct {
		Title, Detail string
		Status        int
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != status || p.Detail == "" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: no problem document: %v %v %s", what, err, a.header, a.body)
	}
}

func etag(d wire.Digest) string { return `"` + d.String() + `"` }

func reprDigest(d wire.Digest) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(d[:]) + ":"
}

// counted counts what is fetched from a bucket.
type counted struct {
	objectstore.Store
	gets *atomic.Int64
}

func (c counted) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key, r)
}

func (c counted) List(context.Context, string, string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		yield(objectstore.Info{}, errors.New("the endpoints never list the bucket"))
	}
}

// shelf is a Catalog that lists what a test has put into it.
type shelf struct {
	mu         sync.Mutex
	records    map[string][]wire.Record
	generation int
	days       int // that were read
}

func (c *shelf) add(instrument string, r wire.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.records[instrument] = append(c.records[instrument], r)
}

// change changes the record of a path.
func (c *shelf) change(instrument, path string, f func(*wire.Record)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for i := range c.records[instrument] {
		if r := &c.records[instrument][i]; r.Path == path {
			f(r)
		}
	}
}

func (c *shelf) Find(ctx context.Context, instrument, path string) (wire.Record, error) {
	all, err := c.Versions(ctx, instrument, path)
	if err != nil {
		return wire.Record{}, err
	}
	return slices.MaxFunc(all, func(a, b wire.Record) int { return cmp.Compare(a.Version, b.Version) }), nil
}

func (c *shelf) Versions(_ context.Context, instrument, path string) ([]wire.Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []wire.Record
	for _, r := range c.records[instrument] {
		if r.Path == path {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", path, archive.ErrNotFound)
	}
	return all, nil
}

func (c *shelf) Named(ctx context.Context, instrument, name string) (wire.Record, error) {
	c.mu.Lock()
	path := ""
	for _, r := range c.records[instrument] {
		if r.Name == name {
			path = r.Path
		}
	}
	c.mu.Unlock()
	return c.Find(ctx, instrument, path)
}

func (c *shelf) Day(_ context.Context, instrument string, day wire.Day) (archive.Day, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.days++
	var all []*wire.Record
	for _, r := range c.records[instrument] {
		if wire.DayOf(r.ReceivedAt) == day && r.State != wire.StateDuplicate {
			all = append(all, &r)
		}
	}
	return archive.Day{Tag: fmt.Sprint(c.generation), Records: slices.Values(all)}, nil
}

func (c *shelf) DayTag(context.Context, string, wire.Day) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.generation), nil
}

func (c *shelf) Oldest(_ context.Context, instrument, dir string) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest time.Time
	for _, r := range c.records[instrument] {
		if strings.HasPrefix(r.Path, dir+"/") && (oldest.IsZero() || r.ReceivedAt.Before(oldest)) {
			oldest = r.ReceivedAt
		}
	}
	return oldest, nil
}

func (c *shelf) Children(_ context.Context, instrument, dir string) (archive.Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	folders := map[string]archive.Folder{}
	var objects []archive.Object
	if dir != "" {
		dir += "/"
	}
	for _, r := range c.records[instrument] {
		rest, ok := strings.CutPrefix(r.Path, dir)
		if !ok || r.State != wire.StateCurrent {
			continue
		}
		name, _, below := strings.Cut(rest, "/")
		if !below {
			objects = append(objects, archive.Object{Name: name, Record: &r})
			continue
		}
		folders[name] = archive.Folder{Name: name, Objects: folders[name].Objects + 1}
	}
	if len(folders) == 0 && len(objects) == 0 {
		return archive.Listing{}, fmt.Errorf("%s: %w", dir, archive.ErrNotFound)
	}
	slices.SortFunc(objects, func(a, b archive.Object) int { return cmp.Compare(a.Name, b.Name) })
	l := archive.Listing{Tag: fmt.Sprint(c.generation), Objects: func(yield func(archive.Object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		l.Folders = append(l.Folders, folders[name])
	}
	return l, nil
}

func (c *shelf) Directories(_ context.Context, instrument string) iter.Seq2[archive.Directory, error] {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for _, r := range c.records[instrument] {
		for dir := path.Dir(r.Path); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return func(yield func(archive.Directory, error) bool) {
		for _, dir := range slices.Sorted(maps.Keys(all)) {
			if !yield(archive.Directory{Path: dir, Changed: storm}, nil) {
				return
			}
		}
	}
}

// noise is a body of so many bytes that does not compress.
func noise(size int) string {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		sum := sha256.Sum256(fmt.Append(nil, i))
		b.Write(sum[:])
	}
	return b.String()[:size]
}
