// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// way is a way to NATS that can be cut.
type way struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (w *way) Dial(network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil, errors.New("the way is cut")
	}
	conn, err := net.Dial(network, address)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

func (w *way) cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = is
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
}

// An object that was retracted and listed while a catalog was disconnected from NATS is not the latest when the catalog reconnects, and
// followers receive the actual latest one.
func TestLatestAfterOutage(t *testing.T) {
	l := newLab(t)
	old, first := object(noon.Add(-time.Hour), "old.jpg"), object(noon, "first.jpg")
	l.Announce(camera, old, first)
	l.part(camera, old, first)
	l.flush()
	way := &way{}
	nc, err := nats.Connect(l.NATS.URL(), nats.SetCustomDialer(way), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c := l.catalog(func(cfg *Config) { cfg.JetStream = js })
	l.ready(c)
	records, cancel := c.Subscribe(camera)
	defer cancel()
	l.same("the first", "first.jpg", (<-records).Path)
	if _, err := c.Types(t.Context(), camera); err != nil {
		t.Error(err)
	}
	way.cut(true)
	now := noon.Add(time.Hour)
	gone := first
	gone.State, gone.Reason, gone.RetractedAt = wire.StateRetracted, "a person is in it", &now
	text := object(noon.Add(-2*time.Hour), "notes.txt")
	text.MediaType = "text/plain"
	l.Announce(camera, gone, text)
	l.part(camera, gone, text)
	l.flush()
	way.cut(false)
	l.ready(c)
	if r, _ := c.Latest(camera, ""); r.Path != "old.jpg" {
		t.Errorf("the latest is %s, %s", r.Path, r.State)
	}
	l.same("who follows is told of", "old.jpg", (<-records).Path)
	if types, err := c.Types(t.Context(), camera); err != nil || len(types) != 2 {
		t.Errorf("the types are %q, %v", types, err)
	}
}

// After the newest object was retracted, or one was restored, an older one that arrives late is not reported as the newest.
func TestOlderIsNotTold(t *testing.T) {
	l := newLab(t)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	records, cancel := c.Subscribe(camera)
	defer cancel()
	told := make(chan string, 100)
	go func() {
		for r := range records {
			told <- r.Path
		}
	}()
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	late := func(minutes int, path string) wire.Record {
		week := noon.AddDate(0, 0, -7)
		return observed(object(at(minutes), path), week, week)
	}
	// until reads reported objects up to one with a path; none of them may be late.
	until := func(path string) {
		t.Helper()
		for {
			select {
			case is := <-told:
				if is == "late.jpg" {
					t.Fatalf("told of as the newest: %s", is)
				}
				if is == path {
					return
				}
			case <-time.After(3 * time.Minute):
				t.Fatalf("never told of %s", path)
			}
		}
	}
	first, second := object(at(0), "first.jpg"), object(at(1), "second.jpg")
	l.Announce(camera, first)
	until("first.jpg")
	l.Announce(camera, second)
	until("second.jpg")

	duplicate := second
	duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, first.ID
	l.Announce(camera, duplicate, late(2, "late.jpg"))
	until("first.jpg")
	third := object(at(3), "third.jpg")
	l.Announce(camera, third)
	until("third.jpg")

	now := at(4)
	gone := third
	gone.State, gone.Reason, gone.RetractedAt = wire.StateRetracted, "moon", &now
	l.Announce(camera, gone, late(5, "late.jpg"))
	until("first.jpg")
	back := gone
	later := at(6)
	back.State, back.RestoredAt = wire.StateCurrent, &later
	l.Announce(camera, back, late(7, "late.jpg"))
	until("third.jpg")
	if r, found := c.Latest(camera, "image/jpeg"); !found || r.Path != "third.jpg" {
		t.Errorf("the latest image is %s, %t", r.Path, found)
	}
	fourth := object(at(8), "fourth.jpg")
	l.Announce(camera, fourth)
	until("fourth.jpg")
}
