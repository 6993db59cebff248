// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/replica"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// running is an incarnation with a spool, on a lab's servers.
type running struct {
	*lab
	js   jetstream.JetStream
	stop func()
}

// start begins an incarnation on a volume, and ends the one before as a kill does.
func (l *lab) start(t *testing.T, dir, incarnation, acknowledge string) *running {
	t.Helper()
	nc := l.nats.Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open(spool.Config{Dir: filepath.Join(dir, "spool"), Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	next := *l
	next.ledger, err = ledger.Open(ledger.Config{
		Dir: filepath.Join(dir, "ledger"), Site: "hub", Gateway: "north-0", Incarnation: incarnation,
	})
	if err != nil {
		t.Fatal(err)
	}
	if next.notices, err = stream.NewCommitter(nc, stream.CommitterConfig{Stream: wire.NoticeStream("hub")}); err != nil {
		t.Fatal(err)
	}
	cfg := l.cfg
	cfg.Incarnation, cfg.Ledger, cfg.Spool, cfg.JetStream, cfg.Metrics = incarnation, next.ledger, s, js, prometheus.NewRegistry()
	cfg.ShortWait = 200 * time.Millisecond
	cfg.Announcer = announce.New(announce.Config{Site: "hub", Gateway: "north-0", Incarnation: incarnation, Notices: next.notices})
	next.Archive = New(cfg)
	next.camera, err = intake.NewInstrument(wire.InstrumentEntry{
		Instrument: "camera", MaxObjectSize: 1 << 30, MaxConnections: 1, MediaType: "image/jpeg", Acknowledge: acknowledge,
		PackBelow: l.packBelow,
	})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is written any more once this incarnation has ended; its files stay as they are.
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = next.ledger.Run(ctx, js); done <- struct{}{} }()
	go func() { _ = next.Drain(ctx); done <- struct{}{} }()
	stopped := false
	v := &running{lab: &next, js: js, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		<-done
		closing, end := context.WithCancel(context.Background())
		end()
		_ = next.notices.Close(closing)
		_ = s.Close()
	}}
	t.Cleanup(v.stop)
	return v
}

// sum returns what the ledger says that all incarnations received, completed by what is announced, without objects
// that are resolved.
func (v *running) sum(t *testing.T) wire.Totals {
	t.Helper()
	kv, err := v.js.KeyValue(t.Context(), wire.LedgerBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), wire.LedgerKey("camera", wire.DayOf(time.Now()), wire.StepReceived, "north-0"))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.Totals{}
	}
	if err != nil {
		t.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		t.Fatal(err)
	}
	announced := manifest.Columns{}
	ids := map[string]bool{}
	for _, n := range v.noticesIn(t) {
		if !ids[n.ID] {
			announced.Add(&n.Record)
		}
		ids[n.ID] = true
	}
	s := wire.Reconcile(entry.Incarnations, announced.Announced, wire.Totals{})
	s.Objects -= s.Resolved
	s.ObjectBytes -= s.ResolvedBytes
	return s
}

func await(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	said := ""
	for range testenv.Attempts() {
		var ok bool
		if ok, said = is(); ok {
			return
		}
	}
	t.Fatalf("not within %v: %s; last: %s", testenv.Patience, what, said)
}

func (v *running) awaitColumns(t *testing.T, objects uint64) {
	t.Helper()
	await(t, fmt.Sprintf("%d objects are received and announced", objects), func() (bool, string) {
		s := v.sum(t)
		ids := map[string]bool{}
		for _, n := range v.noticesIn(t) {
			ids[n.ID] = true
		}
		return s.Objects == objects && len(s.Unfinished) == 0 && len(ids) == int(objects), fmt.Sprintf("%+v, %d announced", s, len(ids))
	})
}

// The table of acknowledge: which objects get a receipt while which service is away.
func TestAcknowledge(t *testing.T) {
	minio := testenv.MinIO(t, testenv.MinIOOptions{}) // one for all rows: each starts it again
	for _, row := range []struct {
		acknowledge string
		// peer: another gateway keeps copies.
		peer bool
		// away is what a sender gets while the store, JetStream, or both are away:
		// no cause is a receipt.
		storeAway, streamAway, bothAway wire.Cause
	}{
		{"Stored", true, wire.CauseStoreUnavailable, wire.CauseStreamUnavailable, wire.CauseStoreUnavailable},
		{"StoredOrSpooled", true, "", "", ""},
		{"Spooled", true, "", "", ""},
		{"Replicated", true, "", "", ""},
		{"Replicated", false, wire.CauseStoreUnavailable, wire.CauseStreamUnavailable, wire.CauseStoreUnavailable},
	} {
		for _, packBelow := range []int64{0, 64 << 10} {
			t.Run(fmt.Sprintf("%s, peer %t, packs below %d", row.acknowledge, row.peer, packBelow), func(t *testing.T) {
				l := newLabOn(t, minio, time.Second)
				l.packBelow = packBelow
				var kept *replica.Log
				if row.peer {
					kept, l.cfg.Copier = l.peer(t)
				}
				v := l.start(t, t.TempDir(), "first", row.acknowledge)
				seed := byte(0)
				receipts := uint64(0)
				try := func(when string, want wire.Cause, sizes ...int) {
					t.Helper()
					for _, size := range sizes {
						seed++
						err := v.send(t, random(seed, size))
						// A busy machine may not store in the second that objects may wait: that sender sends again.
						for again := 0; err != nil && want == "" && CauseOf(err) == row.storeAway && again < 20; again++ {
							err = v.send(t, random(seed, size))
						}
						if err == nil {
							receipts++
						}
						if (err == nil) != (want == "") || err != nil && CauseOf(err) != want {
							t.Errorf("%s, %d bytes: %v, want cause %q", when, size, err, want)
						}
					}
				}
				try("all is well", "", 1000, PartSize+1)
				l.minio.Kill()
				try("the store is away", row.storeAway, 1000, 100_000)
				if row.storeAway == "" {
					try("the store is away", "", PartSize+1)
				}
				l.nats.Kill()
				try("both are away", row.bothAway, 1000)
				if inTwo := row.acknowledge == "Replicated"; row.peer && inTwo != (copies(kept) > 0) {
					t.Errorf("the peer has copies of %d objects", copies(kept))
				}
				l.minio.Start()
				try("JetStream is away", row.streamAway, 1000)
				l.nats.Start()
				await(t, "the spool is empty", func() (bool, string) {
					st := v.cfg.Spool.Stats()
					return st.Objects == 0, fmt.Sprintf("%+v", st)
				})
				await(t, "nobody keeps copies", func() (bool, string) { return kept == nil || copies(kept) == 0, "" })
				try("all is well again", "", 1000)
				if row.storeAway != "" {
					return // a notice that was on its way may have arrived: that sender sends again
				}
				v.awaitColumns(t, receipts)
				if n := l.announced(t); n != receipts {
					t.Errorf("%d notices of %d objects", n, receipts)
				}
				if found := l.checkArchive(t); uint64(len(found)) != receipts {
					t.Errorf("the archive holds %d of %d", len(found), receipts)
				}
			})
		}
	}
}

// The gateway is killed after the stream took a notice and before the spool
// knew: the next one finds that, and all columns count the object once.
func TestAnnouncedAndNotNoted(t *testing.T) {
	for name, twice := range map[string]bool{"one kill": false, "two kills": true} {
		t.Run(name, func(t *testing.T) {
			l := newLabAlone(t, enough)
			dir, killed := t.TempDir(), t.TempDir()
			first := l.start(t, dir, "first", "Spooled")
			l.minio.Pause()
			for seed := range byte(3) {
				first.mustCommit(t, random(seed, 10_000))
			}
			copyVolume(t, dir, killed) // as it is at the kill
			l.minio.Continue()
			first.awaitColumns(t, 3)
			first.stop()

			second := l.start(t, killed, "second", "Spooled")
			second.mustCommit(t, random(9, 10_000))
			if twice {
				dir, killed = killed, t.TempDir()
				await(t, "the spool is empty", func() (bool, string) {
					st := second.cfg.Spool.Stats()
					return st.Objects == 0, fmt.Sprintf("%+v", st)
				})
				copyVolume(t, dir, killed)
				second.stop()
				second = l.start(t, killed, "third", "Spooled")
				second.mustCommit(t, random(10, 10_000))
				second.awaitColumns(t, 5)
			} else {
				second.awaitColumns(t, 4)
			}
			if keys := l.keys(t, "o/"); uint64(len(keys)) != l.announced(t) {
				t.Errorf("%d objects, %d notices", len(keys), l.announced(t))
			}
		})
	}
}

// copyVolume copies a volume's files as they are, while a process writes to them.
func copyVolume(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
