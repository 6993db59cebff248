// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/replica"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// peer starts a second gateway's log of copies, and returns it with what has
// copies kept there.
func (l *lab) peer(t *testing.T) (*replica.Log, *replica.Peers) {
	t.Helper()
	pool, err := memory.NewPool(memory.Config{Budget: 1 << 20, ScratchDir: filepath.Join(t.TempDir(), "scratch"), ScratchSize: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	log, err := replica.OpenLog(replica.LogConfig{Dir: t.TempDir(), Size: 1 << 30, Pool: pool, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := replica.LoadCertificates(testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north")), "north")
	if err != nil {
		t.Fatal(err)
	}
	server, err := replica.NewServer(replica.ServerConfig{
		Address: "127.0.0.1:0", Site: "hub", Pool: "north", Gateway: "north-1", Node: "b", TLS: certificates, Log: log, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.Context()) }()
	t.Cleanup(func() {
		server.Close()
		<-served
		_ = log.Close()
	})
	file := filepath.Join(t.TempDir(), "peers.json")
	known, err := json.Marshal(map[string]any{"north-1": map[string]any{"at": time.Now(), "status": wire.GatewayStatus{
		Gateway: "north-1", Pool: "north", Node: "b", Replica: fmt.Sprintf("127.0.0.1:%d", server.Port())}}})
	if err == nil {
		err = os.WriteFile(file, known, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	peers := replica.NewPeers(replica.PeersConfig{Pool: "north", Gateway: "north-0", Node: "a", TLS: certificates, File: file, Logger: quiet})
	go func() { _ = peers.Run(t.Context()) }()
	return log, peers
}

// putInto keeps an object in a log, in parts if it is large.
func putInto(s *spool.Spool, n wire.Notice, data []byte) error {
	if len(data) <= spool.MaxBody {
		return s.Object(n, bytes.NewReader(data), n.Size)
	}
	var places []spool.Place
	for len(data) > 0 {
		part := data[:min(len(data), spool.MaxBody)]
		data = data[len(part):]
		place, err := s.Part(bytes.NewReader(part), int64(len(part)))
		if err != nil {
			return err
		}
		places = append(places, place)
	}
	return s.Object(n, nil, 0, places...)
}

func copies(log *replica.Log) (objects int64) {
	for _, c := range log.Status() {
		objects += c.Objects
	}
	return objects
}

// A copy is archived once, whichever gateway comes first, and counted only by the gateway that
// received it.
func TestDrainCopy(t *testing.T) {
	for name, size := range map[string]int{"in one request": 10_000, "in parts": PartSize + 5} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, enough)
			v := l.start(t, t.TempDir(), "first", "Spooled")
			kept, err := spool.Open(spool.Config{Dir: t.TempDir(), Size: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			defer kept.Close()
			bring := func(gateway string, body []byte, n wire.Notice) error {
				t.Helper()
				if err := putInto(kept, n, body); err != nil {
					t.Fatal(err)
				}
				e, err := kept.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				v.cfg.Gateway = gateway
				defer func() { v.cfg.Gateway = "north-0" }()
				return v.DrainCopy(t.Context(), e)
			}
			note := func(seed byte) ([]byte, wire.Notice) {
				data := random(seed, size)
				o, err := v.receive(t, nil)
				if err != nil {
					t.Fatal(err)
				}
				o.size = int64(size)
				o.digest.Write(data)
				at, _ := v.clock.now()
				n := o.notice(at, o.digest.digest())
				o.Abort(wire.CauseReset)
				return data, n
			}
			data, n := note(1)
			for _, gateway := range []string{"north-1", "north-1", "north-2"} {
				if err := bring(gateway, data, n); err != nil {
					t.Fatal(err)
				}
			}
			info, err := l.objects.Head(t.Context(), n.Key)
			if err != nil {
				t.Fatal(err)
			}
			there, err := wire.NoticeFromMetadata(n.Key, info.Metadata)
			if err != nil || there.BroughtBy != "north-1" || there.Gateway != "north-0" || there.Digest != n.Digest {
				t.Errorf("the archive says %+v, %v", there, err)
			}
			if got := l.announced(t); got != 1 {
				t.Errorf("%d notices", got)
			}
			if s := v.ledger.Totals("camera", wire.DayOf(time.Now())); s.Objects != 0 {
				t.Errorf("somebody counts it: %+v", s)
			}

			// Another object has its key: it takes the next key.
			data, n = note(2)
			if err := l.objects.Put(t.Context(), n.Key, bytes.NewReader(nil), 0, objectstore.PutOptions{CreateOnly: true}); err != nil {
				t.Fatal(err)
			}
			if err := bring("north-1", data, n); err != nil {
				t.Fatal(err)
			}
			next := wire.RawKey("hub", "camera", n.ReceivedAt.Add(time.Millisecond), n.Digest)
			if _, err := l.objects.Head(t.Context(), next); err != nil {
				t.Errorf("%s: %v", next, err)
			}
		})
	}
}

// Bytes under the key of a named copy that belong to no object are no equal object: the copy
// is archived, and only then given up. A name that another object has is an error.
func TestBringNamedCopy(t *testing.T) {
	l := newLab(t, enough)
	l.claimNames(t)
	v := l.start(t, t.TempDir(), "first", "Spooled")
	v.cfg.Gateway = "north-1"
	kept, err := spool.Open(spool.Config{Dir: t.TempDir(), Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	for name, there := range map[string][]byte{"of-nobody": []byte("foreign"), "empty": nil} {
		t.Run(name, func(t *testing.T) {
			data := random(byte(len(name)), 10_000)
			n := wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{Name: name,
				Size: int64(len(data)), Digest: sha256.Sum256(data), State: wire.StateCurrent, MediaType: "image/jpeg",
				ReceivedAt: time.Now().UTC(), TimeSource: wire.TimeSourceReceived, Gateway: "north-0", Incarnation: "one"}}
			n.Key = wire.NamedKey("hub", "camera", name, 1)
			n.ID = n.Key
			if err := putInto(kept, n, data); err != nil {
				t.Fatal(err)
			}
			e, err := kept.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.objects.Put(t.Context(), n.Key, bytes.NewReader(there), int64(len(there)), objectstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time it is archived
				if err := v.DrainCopy(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				if got := l.bytesOf(t, n.Record); !bytes.Equal(got, data) {
					t.Fatalf("%d bytes lie under the name, which are not those of the copy", len(got))
				}
			}
		})
	}
	if n := len(l.noticesIn(t)); n != 2 {
		t.Errorf("%d notices, want 2", n)
	}
}
