// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// patience is how long a test waits for what must come. It decides no test.
const patience = 60 * time.Second

// program is the gateway, built once with buildFlags.
var (
	program    string
	buildFlags []string
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ingest-gateway-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "ingest-gateway")
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", program, "./cmd")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the gateway:", err)
		return 1
	}
	return m.Run()
}

// lab is a Site: real servers, its streams and buckets, and its registry.
type lab struct {
	nats     *parts.NATSServer
	minio    *parts.MinIOServer
	js       jetstream.JetStream
	site     string
	bucket   string
	store    objectstore.Store
	registry jetstream.KeyValue
	entries  map[string]wire.InstrumentEntry
	revision int64
}

func newLab(t *testing.T) *lab {
	return (&lab{nats: parts.NATS(t, parts.NATSOptions{}), minio: parts.MinIO(t, parts.MinIOOptions{})}).newSite(t, "hub")
}

// newSite is another Site on the same servers.
func (l *lab) newSite(t *testing.T, code string) *lab {
	t.Helper()
	n := &lab{nats: l.nats, minio: l.minio, site: code, bucket: "archive-" + code, entries: map[string]wire.InstrumentEntry{}}
	n.js = l.nats.JetStream(t)
	parts.CreateSite(t, n.js, code)
	n.store = l.minio.Bucket(t, n.bucket)
	var err error
	if n.registry, err = n.js.KeyValue(t.Context(), wire.RegistryBucket(code)); err != nil {
		t.Fatal(err)
	}
	return n
}

// tcpInstrument is an entry with one way in over TCP.
func tcpInstrument(name string, port int) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		UID: "uid-" + name, Generation: 1, Instrument: name, Gateway: "north",
		Ways: []wire.WayEntry{{
			Protocol: wire.ProtocolTCP, Port: uint16(port), Framing: wire.FramingUntilClose, Receipt: wire.ReceiptLine,
			IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000,
		}},
		MaxObjectSize: 1 << 30, MaxConnections: 1024, Acknowledge: "Stored", MediaType: "image/jpeg",
		CadenceMillis: 60_000, RepeatWindowMillis: 720 * 3_600_000, SegmentAgeMillis: 600_000, SegmentSize: 64 << 20,
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
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	l.putKey(t, wire.RegistryInstrumentKey(e.Instrument), b)
}

func (l *lab) complete(t *testing.T) {
	t.Helper()
	b, err := wire.RegistryComplete{Revision: l.revision, Count: len(l.entries)}.Encode()
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

// gateway is a running gateway process.
type gateway struct {
	t     *testing.T
	cmd   *exec.Cmd
	done  chan error
	name  string
	http  string
	log   string
	dir   string
	flags []string
}

type gatewayOptions struct {
	name, dir string
	flags     []string
}

// start starts a gateway on a volume and waits until it answers.
func (l *lab) start(t *testing.T, o gatewayOptions) *gateway {
	t.Helper()
	if o.name == "" {
		o.name = "north-0"
	}
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	secrets := t.TempDir()
	for file, value := range map[string]string{
		objectstore.FileAccessKeyID: l.minio.AccessKeyID, objectstore.FileSecretAccessKey: l.minio.SecretAccessKey,
	} {
		if err := os.WriteFile(filepath.Join(secrets, file), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &gateway{t: t, name: o.name, dir: o.dir, flags: o.flags, log: filepath.Join(t.TempDir(), "log"), done: make(chan error, 1)}
	g.http = fmt.Sprintf("127.0.0.1:%d", parts.FreePort(t))
	args := append([]string{
		"--site", l.site, "--pool", "north", "--gateway", o.name, "--data-dir", o.dir,
		"--listen-http", g.http, "--ports", "10000-30000", "--log-level", "debug",
		"--nats-servers", l.nats.URL(), "--s3-endpoint", l.minio.URL(), "--s3-bucket", l.bucket, "--s3-credentials-dir", secrets,
	}, o.flags...)
	g.launch(args)
	t.Cleanup(func() {
		g.kill()
		log := g.readLog()
		for _, bad := range []string{"DATA RACE", "panic: ", "fatal error: "} {
			if strings.Contains(log, bad) {
				t.Errorf("the gateway's log holds %q", bad)
			}
		}
		if t.Failed() {
			t.Logf("the last of the gateway's log:\n%s", log[max(0, len(log)-6000):])
		}
	})
	return g
}

func (g *gateway) launch(args []string) {
	g.t.Helper()
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	g.cmd = exec.Command(program, args...)
	g.cmd.Stderr = log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the death signal comes when the starting thread ends
		defer log.Close()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			g.done <- g.cmd.Wait()
			close(g.done)
		}
	}()
	if err := <-started; err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) signal(s syscall.Signal) { _ = g.cmd.Process.Signal(s) }

// kill ends the process as a power cut would.
func (g *gateway) kill() {
	g.signal(syscall.SIGKILL)
	for range g.done { // it is closed then
	}
}

// stop ends the process as Kubernetes does and returns what it ended with.
func (g *gateway) stop() error {
	g.signal(syscall.SIGTERM)
	select {
	case err := <-g.done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("the gateway runs %v after SIGTERM", patience)
	}
}

func (g *gateway) readLog() string {
	b, _ := os.ReadFile(g.log)
	return string(b)
}

// get returns what an HTTP path answers.
func (g *gateway) get(path string) (int, string) {
	resp, err := http.Get("http://" + g.http + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// metric returns the value of a series, as /metrics spells it; "" without it.
func (g *gateway) metric(series string) string {
	_, text := g.get("/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// number is metric as a number; 0 without it.
func (g *gateway) number(series string) float64 {
	v, _ := strconv.ParseFloat(g.metric(series), 64)
	return v
}

func (g *gateway) awaitReady() {
	g.t.Helper()
	await(g.t, "the gateway is ready", func() (bool, string) {
		status, text := g.get("/readyz")
		return status == http.StatusOK, text
	})
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
	return wire.DecodeGatewayStatus(e.Value())
}

// await waits until something is so.
func await(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	said := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var ok bool
		if ok, said = is(); ok {
			return
		}
	}
	t.Fatalf("not within %v: %s; last: %s", patience, what, said)
}

// answer is what a sender saw.
type answer struct {
	line string
	err  error // of reading; nil where the other side closed cleanly
}

func (a answer) receipt(t *testing.T) wire.Receipt {
	t.Helper()
	if a.err != nil {
		t.Fatalf("no receipt: %q, %v", a.line, a.err)
	}
	r, err := wire.ParseReceipt(a.line)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dial connects to a port, which may only just be opening.
func dial(t *testing.T, port int) *net.TCPConn {
	t.Helper()
	var conn net.Conn
	await(t, fmt.Sprintf("port %d accepts", port), func() (bool, string) {
		var err error
		conn, err = net.Dial("tcp", loopback(port))
		return err == nil, fmt.Sprint(err)
	})
	return conn.(*net.TCPConn)
}

// hear reads what the gateway says until the connection ends.
func hear(conn net.Conn) answer {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(conn)
	return answer{string(b), err}
}

// send sends an object and hears the answer.
func send(t *testing.T, port int, object []byte) answer {
	t.Helper()
	conn := dial(t, port)
	defer conn.Close()
	if _, err := conn.Write(object); err != nil {
		return answer{err: err}
	}
	if err := conn.CloseWrite(); err != nil {
		return answer{err: err}
	}
	return hear(conn)
}

// mustSend sends an object and fails without its receipt.
func mustSend(t *testing.T, port int, object []byte) {
	t.Helper()
	want := wire.Receipt{Digest: sha256.Sum256(object), Bytes: int64(len(object))}
	if got := send(t, port, object).receipt(t); got != want {
		t.Fatalf("receipt %+v, want %+v", got, want)
	}
}

// random returns n bytes that depend on seed alone.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// notices returns all notices on the stream, in order.
func (l *lab) notices(t *testing.T) []wire.Notice {
	t.Helper()
	stream, err := l.js.Stream(t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var notices []wire.Notice
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.DecodeNotice(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if id := m.Header.Get(wire.HeaderMessageID); id != n.ID || m.Header.Get(wire.HeaderID) != id {
			t.Errorf("the notice of %s has the id %q", n.Key, id)
		}
		notices = append(notices, n)
	}
	return notices
}

// keys returns the keys in the bucket under a prefix.
func (l *lab) keys(t *testing.T, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range l.store.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// digestOf reads an object and returns its metadata and the digest of its bytes.
func (l *lab) digestOf(t *testing.T, key string) (wire.Digest, objectstore.Info) {
	t.Helper()
	body, info, err := l.store.Get(t.Context(), key, objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, body); err != nil {
		t.Fatal(err)
	}
	return wire.Digest(h.Sum(nil)), info
}

// ledger returns what the ledger has of a step, of all gateways and today and
// yesterday.
func (l *lab) ledger(t *testing.T, instrument string, step wire.Step) wire.Totals {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.LedgerBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	lister, err := kv.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sum wire.Totals
	var keys []string
	for key := range lister.Keys() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		name, _, s, _, err := wire.ParseLedgerKey(key)
		if err != nil || name != instrument || s != step {
			continue
		}
		e, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := wire.DecodeLedgerEntry(e.Value())
		if err != nil {
			t.Fatal(err)
		}
		sum = sum.Plus(entry.Sum())
	}
	return sum
}

// awaitLedger waits until a column says what it should.
func (l *lab) awaitLedger(t *testing.T, instrument string, step wire.Step, is func(wire.Totals) bool) {
	t.Helper()
	await(t, fmt.Sprintf("the ledger's column %s of %s", step, instrument), func() (bool, string) {
		totals := l.ledger(t, instrument, step)
		b, _ := json.Marshal(totals)
		return is(totals), string(b)
	})
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
