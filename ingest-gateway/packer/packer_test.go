// SPDX-License-Identifier: Apache-2.0

package packer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

var sampleTime = time.Date(2026, 11, 21, 23, 59, 58, 987654321, time.UTC)

func notice(instrument, body string, at time.Time) wire.Notice {
	return wire.Notice{Site: "thule", Instrument: instrument, Record: wire.Record{
		Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Gateway: "gateway-0", Incarnation: "one",
	}}
}

// put is a pack on its way.
type put struct {
	key     string
	data    []byte
	members int
	ctx     context.Context
	answer  chan error
}

// bench is a packer whose packs arrive when the test says so.
type bench struct {
	*Packer
	pool   *pool
	puts   chan *put
	mu     sync.Mutex
	failed []string
}

type pool struct{ *memory.Pool }

// newBench returns a packer with so many packs on their way at most: with one, no
// pack goes because of its age.
func newBench(t *testing.T, budget int64, inFlight int) *bench {
	t.Helper()
	p, err := memory.NewPool(memory.Config{Budget: budget, ScratchDir: filepath.Join(t.TempDir(), "scratch"), ScratchSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{pool: &pool{p}, puts: make(chan *put, 1000)}
	b.Packer = NewPacker(Config{
		Site: "thule", Gateway: "gateway-0", Incarnation: "one", Number: new(atomic.Uint64), Pool: p, InFlight: inFlight,
		Put: func(ctx context.Context, key string, body io.ReadSeeker, size int64, digest wire.Digest, members int) error {
			if _, err := body.Seek(0, io.SeekStart); err != nil {
				return err
			}
			data, err := io.ReadAll(body)
			if err != nil || int64(len(data)) != size {
				return fmt.Errorf("body of %d bytes has %d: %w", size, len(data), err)
			}
			f := &put{key, data, members, ctx, make(chan error, 1)}
			b.puts <- f
			select {
			case err := <-f.answer:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
		Failed: func(key string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.failed = append(b.failed, key)
		},
	})
	t.Cleanup(func() {
		if used := p.Stats().MemoryUsed; used != 0 {
			t.Errorf("at the end %d bytes are used", used)
		}
	})
	return b
}

func (b *bench) add(t *testing.T, body string, at time.Time) *Member {
	t.Helper()
	m, err := b.Add(notice("sonde", body, at), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (b *bench) next(t *testing.T) *put {
	t.Helper()
	select {
	case f := <-b.puts:
		return f
	case <-time.After(3 * time.Minute):
		t.Fatal("no pack is sent")
		return nil
	}
}

func (b *bench) none(t *testing.T) {
	t.Helper()
	select {
	case f := <-b.puts:
		t.Fatalf("a pack of %d members is sent", f.members)
	default:
	}
}

// bodies reads what a pack holds.
func (f *put) bodies(t *testing.T) []string {
	t.Helper()
	var all []string
	for n, err := range bucket.MembersFrom(bytes.NewReader(f.data), f.key, int64(len(f.data))) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(f.data[n.Offset:n.Offset+n.Length]))
	}
	if len(all) != f.members {
		t.Errorf("the pack holds %d members and says %d", len(all), f.members)
	}
	return all
}

func arrived(t *testing.T, f *put, err error, all ...*Member) {
	t.Helper()
	f.answer <- err
	for _, m := range all {
		if got := m.Wait(t.Context()); !errors.Is(got, err) {
			t.Errorf("member %s: %v, want %v", m.Notice.ID, got, err)
		}
		m.Release()
	}
}

// A lone object waits for nothing; what comes while it is on its way goes with
// the next, as soon as it has arrived.
func TestIdleStore(t *testing.T) {
	b := newBench(t, 64<<20, 1)
	first := b.add(t, "one", sampleTime)
	flight := b.next(t)
	second, third := b.add(t, "two", sampleTime), b.add(t, "three", sampleTime)
	if got := string(flight.data[first.Notice.Offset:][:first.Notice.Length]); got != "one" || first.Notice.Key != flight.key {
		t.Errorf("the first member is %q in %s", got, first.Notice.Key)
	}
	arrived(t, flight, nil, first)
	flight = b.next(t)
	if got := strings.Join(flight.bodies(t), " "); got != "two three" {
		t.Errorf("the second pack holds %q", got)
	}
	arrived(t, flight, nil, second, third)
	b.none(t)
}

// While the store is busy a pack goes when it is old enough; no more than so many
// at a time.
func TestBusyStore(t *testing.T) {
	b := newBench(t, 64<<20, 2)
	first := b.add(t, "one", sampleTime)
	one := b.next(t)
	second := b.add(t, "two", sampleTime)
	two := b.next(t) // after maxAge
	third := b.add(t, "three", sampleTime)
	testenv.Await(t, "the third pack is old enough, or is sent", func() bool {
		b.Packer.mu.Lock()
		defer b.Packer.mu.Unlock()
		return b.Packer.due || len(b.puts) > 0
	})
	b.none(t) // two are on their way already
	arrived(t, one, nil, first)
	three := b.next(t)
	arrived(t, two, nil, second)
	arrived(t, three, nil, third)
}

// A pack closes at its size and at the day's end.
func TestFullPack(t *testing.T) {
	b := newBench(t, 64<<20, 1)
	all := []*Member{b.add(t, "one", sampleTime)}
	one := b.next(t)
	body := strings.Repeat("x", 1<<20)
	for range 9 {
		all = append(all, b.add(t, body, sampleTime))
	}
	tomorrow := b.add(t, "tomorrow", sampleTime.Add(time.Hour))
	arrived(t, one, nil, all[0])
	full := b.next(t)
	if full.members != 7 || len(full.data) > pack.MaxSize {
		t.Fatalf("a full pack has %d members and %d bytes", full.members, len(full.data))
	}
	arrived(t, full, nil, all[1:8]...)
	rest := b.next(t)
	arrived(t, rest, nil, all[8:]...)
	last := b.next(t)
	if rest.members != 2 || last.members != 1 {
		t.Errorf("then go %d and %d", rest.members, last.members)
	}
	arrived(t, last, nil, tomorrow)
	if file, err := wire.ParsePackKey(last.key); err != nil || file.Day != "2026-11-22" {
		t.Errorf("the pack of the next day is %s", last.key)
	}
}

// If there is no memory for a copy, Add says so at once.
func TestNoSpace(t *testing.T) {
	b := newBench(t, 400<<10, 1)
	body := strings.Repeat("x", 60<<10)
	first := b.add(t, body, sampleTime)
	one := b.next(t)
	var more []*Member
	for {
		m, err := b.Add(notice("sonde", body, sampleTime), strings.NewReader(body))
		if errors.Is(err, ErrNoSpace) {
			break
		}
		if err != nil || len(more) > 8 {
			t.Fatalf("%v with %d more", err, len(more))
		}
		more = append(more, m)
	}
	arrived(t, one, nil, first)
	arrived(t, b.next(t), nil, more...)
}

// While received objects take all memory, packs have some of their own.
func TestReserve(t *testing.T) {
	b := newBench(t, memory.FirstSlab, 1)
	held := b.pool.NewBuffer(memory.FirstSlab, func() {})
	defer held.Release()
	if _, err := held.Space(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(notice("sonde", "one", sampleTime), strings.NewReader("one")); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("without a reserve: %v, want ErrNoSpace", err)
	}
	var err error
	if b.cfg.Reserve, err = memory.NewPool(memory.Config{Budget: memory.FirstSlab}); err != nil {
		t.Fatal(err)
	}
	one := b.add(t, "one", sampleTime)
	arrived(t, b.next(t), nil, one)
	if used := b.cfg.Reserve.Stats().MemoryUsed; used != 0 {
		t.Errorf("%d bytes of the reserve are not given back", used)
	}
}

// A pack that fails fails for all its members, whose bytes can still be read.
func TestFailure(t *testing.T) {
	b := newBench(t, 64<<20, 1)
	first := b.add(t, "one", sampleTime)
	one := b.next(t)
	second, third := b.add(t, "two", sampleTime), b.add(t, "three", sampleTime)
	arrived(t, one, nil, first)
	flight, away := b.next(t), errors.New("away")
	flight.answer <- away
	for m, want := range map[*Member]string{second: "two", third: "three"} {
		if err := m.Wait(t.Context()); !errors.Is(err, away) {
			t.Errorf("%v", err)
		}
		if got, err := io.ReadAll(m.Reader()); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		m.Release()
	}
	if len(b.failed) != 1 || b.failed[0] != flight.key {
		t.Errorf("failed: %v", b.failed)
	}
}

// A pack is given up once no caller waits for it, and not before.
func TestGivenUp(t *testing.T) {
	b := newBench(t, 64<<20, 1)
	first := b.add(t, "one", sampleTime)
	one := b.next(t)
	second, third := b.add(t, "two", sampleTime), b.add(t, "three", sampleTime)
	second.Release()
	arrived(t, one, nil, first)
	two := b.next(t)
	if two.ctx.Err() != nil {
		t.Error("the pack is given up though one member waits")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := third.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	third.Release()
	<-two.ctx.Done()
	fourth := b.add(t, "four", sampleTime)
	arrived(t, b.next(t), nil, fourth)
}

// Many at once: every member is in exactly one pack, where its notice says.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t, 16<<20, 4)
	go func() {
		for f := range b.puts {
			f.answer <- nil
		}
	}()
	var seen sync.Map
	var workers sync.WaitGroup
	for w := range 64 {
		workers.Go(func() {
			for i := range 50 {
				body := bytes.Repeat([]byte{byte(w), byte(i)}, 1+w*i)
				m, err := b.Add(notice("sonde", string(body), sampleTime), bytes.NewReader(body))
				if errors.Is(err, ErrNoSpace) {
					continue
				}
				if err != nil || m.Wait(t.Context()) != nil {
					t.Error(err)
					return
				}
				if _, twice := seen.LoadOrStore(m.Notice.ID, true); twice {
					t.Errorf("two members are %s", m.Notice.ID)
				}
				m.Release()
			}
		})
	}
	workers.Wait()
	close(b.puts)
}
