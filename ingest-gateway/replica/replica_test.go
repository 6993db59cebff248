// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func random(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func notice(data []byte) wire.Notice {
	digest := wire.Digest(sha256.Sum256(data))
	at := time.Now().UTC()
	id := wire.RawKey("hub", "camera", at, digest)
	return wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
		ID: id, Key: id, Size: int64(len(data)), Digest: digest, State: wire.StateCurrent, ReceivedAt: at,
		TimeSource: wire.TimeSourceReceived, Gateway: "north-0", Incarnation: "one"}}
}

// keeper is a gateway that takes copies.
type keeper struct {
	*Log
	server *Server
	dir    string
	stop   func()
}

func startKeeper(t testing.TB, dir, certificates string, size int64) *keeper {
	t.Helper()
	return startKeeperAs(t, "north-1", dir, certificates, size)
}

func startKeeperAs(t testing.TB, gateway, dir, certificates string, size int64) *keeper {
	t.Helper()
	pool, err := memory.NewPool(memory.Config{Budget: 1 << 20, ScratchDir: filepath.Join(t.TempDir(), "scratch"), ScratchSize: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	k := &keeper{dir: dir}
	if k.Log, err = OpenLog(LogConfig{Dir: dir, Size: size, Pool: pool, Logger: log}); err != nil {
		t.Fatal(err)
	}
	c, err := LoadCertificates(certificates, "north")
	if err != nil {
		t.Fatal(err)
	}
	k.server, err = NewServer(ServerConfig{Address: "127.0.0.1:0", Site: "hub", Pool: "north", Gateway: gateway, Node: "node-of-" + gateway, TLS: c, Log: k.Log, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- k.server.Serve(t.Context()) }()
	stopped := false
	k.stop = func() {
		if stopped {
			return
		}
		stopped = true
		k.server.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if s := pool.Stats(); s.MemoryUsed != 0 || s.ScratchUsed != 0 {
			t.Errorf("at the end the pool holds %+v", s)
		}
	}
	t.Cleanup(k.stop)
	return k
}

func (k *keeper) address() string { return fmt.Sprintf("127.0.0.1:%d", k.server.Port()) }

// peersOf is an owner that knows these keepers.
func peersOf(t testing.TB, certificates string, keepers map[string]string) *Peers {
	t.Helper()
	c, err := LoadCertificates(certificates, "north")
	if err != nil {
		t.Fatal(err)
	}
	p := NewPeers(PeersConfig{Pool: "north", Gateway: "north-0", Node: "a", TLS: c, File: filepath.Join(t.TempDir(), "peers.json"), Logger: slog.New(slog.DiscardHandler)})
	for name, address := range keepers {
		p.gateway[name] = seen{wire.GatewayStatus{Gateway: name, Pool: "north", Node: "node-of-" + name, Replica: address}, time.Now()}
	}
	return p
}

func (k *keeper) kept() (objects int64) {
	for _, c := range k.Status() {
		objects += c.Objects
	}
	return objects
}

// Copies of any size are kept across a restart, once, and forgotten when they
// are archived.
func TestCopies(t *testing.T) {
	dir, certificates := t.TempDir(), testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north"))
	k := startKeeper(t, dir, certificates, 1<<30)
	p := peersOf(t, certificates, map[string]string{"north-1": k.address()})
	var notices []wire.Notice
	for i, size := range []int{0, 1, 100_000, 1 << 20, 40 << 20} {
		data := random(byte(i), size)
		n := notice(data)
		for range 2 { // the answer to the first was lost, say
			peer, err := p.Copy(t.Context(), n, bytes.NewReader(data))
			if err != nil || peer != "north-1" {
				t.Fatalf("%d bytes: %q, %v", size, peer, err)
			}
		}
		notices = append(notices, n)
	}
	if n := k.kept(); n != int64(len(notices)) {
		t.Errorf("%d copies of %d objects", n, len(notices))
	}
	k.stop()
	k = startKeeper(t, dir, certificates, 1<<30)
	p.gateway["north-1"] = seen{wire.GatewayStatus{Gateway: "north-1", Pool: "north", Node: "b", Replica: k.address()}, time.Now()}
	if n := k.kept(); n != int64(len(notices)) {
		t.Errorf("%d copies after a restart", n)
	}
	go func() { _ = p.Run(t.Context()) }()
	for _, n := range notices {
		p.Done("north-1", n.ID)
	}
	testenv.Await(t, "nothing is kept", func() bool { return k.kept() == 0 })
}

// More large objects at a time than the peer has memory for: none waits for
// another for ever.
func TestManyCopiesAtOnce(t *testing.T) {
	certificates := testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north"))
	k := startKeeper(t, t.TempDir(), certificates, 1<<30)
	p := peersOf(t, certificates, map[string]string{"north-1": k.address()})
	const many = 200
	errs := make(chan error, many)
	for i := range many {
		go func() {
			data := random(byte(i), 1<<20)
			n := notice(data)
			n.ID += fmt.Sprint(i)
			_, err := p.Copy(t.Context(), n, bytes.NewReader(data))
			errs <- err
		}()
	}
	for range many {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n := k.kept(); n != many {
		t.Errorf("%d copies of %d", n, many)
	}
}

// A copy that is not what its notice says, or does not fit, is not kept.
func TestCopiesRefused(t *testing.T) {
	certificates := testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north"))
	k := startKeeper(t, t.TempDir(), certificates, 2<<20)
	p := peersOf(t, certificates, map[string]string{"north-1": k.address()})
	data := random(1, 1000)
	other := notice(random(2, 1000))
	if _, err := p.Copy(t.Context(), other, bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), "not what its notice says") {
		t.Errorf("other bytes: %v", err)
	}
	clear(p.shunned)
	foreign := notice(data)
	foreign.Gateway = "north-7"
	if _, err := p.Copy(t.Context(), foreign, bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("of another gateway: %v", err)
	}
	clear(p.shunned)
	large := random(3, 3<<20)
	if _, err := p.Copy(t.Context(), notice(large), bytes.NewReader(large)); !errors.Is(err, spool.ErrFull) {
		t.Errorf("what does not fit: %v", err)
	}
	if n := k.kept(); n != 0 {
		t.Errorf("%d copies are kept", n)
	}
}

// Only the pool's own gateways are let in.
func TestForeign(t *testing.T) {
	ca := testenv.NewCA(t)
	certificates := ca.Dir(t, "north", wire.GatewayName("north"))
	k := startKeeper(t, t.TempDir(), certificates, 1<<30)
	data := random(1, 1000)
	for name, dir := range map[string]string{
		"of another authority":     testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north")),
		"of another pool":          ca.Dir(t, "south", wire.GatewayName("south")),
		"of a server, and no pool": ca.Dir(t, "nats"),
	} {
		p := peersOf(t, dir, map[string]string{"north-1": k.address()})
		if peer, err := p.Copy(t.Context(), notice(data), bytes.NewReader(data)); err == nil {
			t.Errorf("%s: %s has a copy", name, peer)
		}
	}
	bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	if resp, err := bare.Get("https://" + k.address() + "/"); err == nil {
		resp.Body.Close()
		t.Error("who shows no certificate gets an answer")
	}
	p := peersOf(t, certificates, map[string]string{"north-1": k.address()})
	for _, owner := range []string{"south-0", "north-1", "..", "north-0%2F..", "NORTH-0"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+k.address()+copiesPath+owner, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.do(r, "north-1"); err == nil {
			t.Errorf("owner %q is let in", owner)
		}
	}
	if files, err := os.ReadDir(k.dir); err != nil || len(files) != 0 {
		t.Errorf("foreign left %v, %v", files, err)
	}
	if n := k.kept(); n != 0 {
		t.Errorf("%d copies are kept", n)
	}
}

// A peer on the same node, one that drains, and one that is silent get nothing;
// one that does not answer is passed over.
func TestWhoIsAPeer(t *testing.T) {
	certificates := testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north"))
	k := startKeeperAs(t, "north-2", t.TempDir(), certificates, 1<<30)
	data := random(1, 1000)
	long := time.Now().Add(-time.Hour)
	good := wire.GatewayStatus{Gateway: "north-2", Pool: "north", Node: "b", Replica: k.address()}
	for name, c := range map[string]struct {
		change func(*wire.GatewayStatus)
		at     time.Time
		since  time.Time
		peer   string
	}{
		"good":                     {func(*wire.GatewayStatus) {}, time.Now(), long, "north-2"},
		"on our node":              {func(s *wire.GatewayStatus) { s.Node = "a" }, time.Now(), long, ""},
		"on no node":               {func(s *wire.GatewayStatus) { s.Node = "" }, time.Now(), long, ""},
		"draining":                 {func(s *wire.GatewayStatus) { s.Draining = true }, time.Now(), long, ""},
		"of another pool":          {func(s *wire.GatewayStatus) { s.Pool = "south" }, time.Now(), long, ""},
		"keeps no copies":          {func(s *wire.GatewayStatus) { s.Replica = "" }, time.Now(), long, ""},
		"silent":                   {func(*wire.GatewayStatus) {}, long, long, ""},
		"silent, as JetStream is":  {func(*wire.GatewayStatus) {}, long, time.Time{}, "north-2"},
		"silent, as JetStream was": {func(*wire.GatewayStatus) {}, long, time.Now(), "north-2"},
	} {
		p := peersOf(t, certificates, nil)
		s := good
		c.change(&s)
		p.gateway["north-2"], p.since = seen{s, c.at}, c.since
		if got := p.Peer(); got != c.peer {
			t.Errorf("%s: the peer is %q, want %q", name, got, c.peer)
		}
		if _, err := p.Copy(t.Context(), notice(data), bytes.NewReader(data)); (err == nil) != (c.peer != "") || err != nil && !errors.Is(err, ErrNoPeer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := peersOf(t, certificates, map[string]string{"north-1": "127.0.0.1:1", "north-2": k.address()})
	if peer, err := p.Copy(t.Context(), notice(data), bytes.NewReader(data)); err != nil || peer != "north-2" {
		t.Errorf("beside one that does not answer: %q, %v", peer, err)
	}
	if p.Peer() != "north-2" {
		t.Errorf("and then the peer is %q", p.Peer())
	}
}

// Copies drain when their owner is silent, or has forgotten them, and not before.
func TestWhenCopiesDrain(t *testing.T) {
	data := random(1, 1000)
	n := notice(data)
	n.ReceivedAt = time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		owner Owner
		known bool
		goes  bool
	}{
		"nobody knows":                        {Owner{}, false, false},
		"it reports, and has it in its spool": {Owner{SpoolSince: n.ReceivedAt.Add(-time.Hour)}, true, false},
		"it reports, and has it no more":      {Owner{}, true, true},
		"it is silent":                        {Owner{Silent: time.Hour, SpoolSince: n.ReceivedAt.Add(-time.Hour)}, true, true},
		"it is silent for a moment":           {Owner{Silent: time.Second, SpoolSince: n.ReceivedAt.Add(-time.Hour)}, true, false},
	} {
		k := startKeeper(t, t.TempDir(), testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north")), 1<<30)
		if err := k.Keep(t.Context(), "north-0", n, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		asked, brought := make(chan struct{}, 1000), make(chan struct{}, 1)
		done := make(chan error, 1)
		failing := true
		go func() {
			done <- k.Drain(ctx, DrainConfig{After: time.Minute, Every: 5 * time.Millisecond,
				Owner: func(string) (Owner, bool) { asked <- struct{}{}; return c.owner, c.known },
				Bring: func(_ context.Context, all []*spool.Entry) []error {
					errs := make([]error, len(all))
					for i, e := range all {
						if errs[i] = e.Verify(); failing { // once
							failing = false
							errs[i] = errors.New("the store is away")
						} else {
							brought <- struct{}{}
						}
					}
					return errs
				}})
		}()
		if c.goes {
			<-brought
			testenv.Await(t, name+": nothing is kept", func() bool { return k.kept() == 0 })
		} else {
			for range 5 {
				<-asked
			}
			if len(brought) > 0 || k.kept() != 1 {
				t.Errorf("%s: it was drained", name)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		k.stop()
	}
}

// A remembered address may belong to another pod by now, or to one on our own node: its answer that
// it keeps a copy counts for nothing, and a pod that was not meant keeps none.
func TestReusedAddress(t *testing.T) {
	certificates := testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north"))
	k := startKeeper(t, t.TempDir(), certificates, 1<<30)
	data := random(1, 100)
	copyTo := func(name, node string) error {
		p := peersOf(t, certificates, map[string]string{name: k.address()})
		p.cfg.Node = node
		_, err := p.Copy(t.Context(), notice(data), bytes.NewReader(data))
		return err
	}
	if err := copyTo("north-2", "a"); !errors.Is(err, ErrNoPeer) || !errors.Is(err, errNotThePeer) {
		t.Errorf("the address of north-2 is now that of north-1: %v", err)
	}
	if n := k.kept(); n != 0 {
		t.Errorf("a pod that was not meant keeps %d copies", n)
	}
	// It was seen on another node, and came back on ours.
	p := peersOf(t, certificates, map[string]string{"north-1": k.address()})
	s := p.gateway["north-1"]
	s.Status.Node = "elsewhere"
	p.gateway["north-1"], p.cfg.Node = s, "node-of-north-1"
	if _, err := p.Copy(t.Context(), notice(data), bytes.NewReader(data)); !errors.Is(err, ErrNoPeer) || !errors.Is(err, errNotThePeer) {
		t.Errorf("a copy on our own node: %v", err)
	}
	if err := copyTo("north-1", "a"); err != nil || k.kept() != 1 {
		t.Errorf("a peer on another node: %v, %d copies", err, k.kept())
	}
}
