// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Hurry has a server wait for clients a tenth as long as it would.
func (s *Server) Hurry() { s.bounds = bounds{aliveTimeout / 10, grace / 10, credit / 10} }

// Wait has a server wait for clients that have a turn as long as they like, and has others wait for one for patience.
func (s *Server) Wait(patience time.Duration) {
	s.bounds = bounds{aliveTimeout, aliveTimeout, aliveTimeout}
	s.turns = endpoint.NewOpenTurns(1, patience)
}

// summaries is a catalog of whose instruments something was received today.
type summaries struct{}

func (summaries) Days(context.Context, string) ([]wire.RootDay, error) {
	return []wire.RootDay{{Day: wire.DayOf(time.Now()), Entries: 1}}, nil
}

func (summaries) Day(_ context.Context, instrument string, day wire.Day) (*catalog.Day, error) {
	return &catalog.Day{Instrument: instrument, Day: day}, nil
}

// newServer returns one that serves so many instruments, and accepts no connections by itself.
func newServer(t *testing.T, instruments int, change func(*Config)) *Server {
	t.Helper()
	s := &registry.Snapshot{Revision: 1, Instruments: map[string]wire.InstrumentEntry{}}
	for i := range instruments {
		name := fmt.Sprintf("instrument-%05d", i)
		s.Instruments[name] = wire.InstrumentEntry{Instrument: name, UID: name, Generation: 1, Access: &wire.AccessEntry{Archive: wire.AccessPublic}}
	}
	metrics, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	cfg := Config{
		Site: "thule", Listen: "127.0.0.1:0", Catalog: summaries{}, Registry: func() *registry.Snapshot { return s }, Logger: log, Metrics: metrics,
		Admission: endpoint.NewAdmission(endpoint.AdmissionConfig{Logger: log, Metrics: metrics}),
	}
	if change != nil {
		change(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = server.listener.Close()
	return server
}

// newTestSession returns the session of one connection, and the client's end of it.
func newTestSession(t *testing.T, s *Server) (*session, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); conn.Close() })
	is := s.newSession(conn, endpoint.RequestOfConnection(t.Context(), conn))
	is.options.recurse, is.in.framed, is.out.framed, is.protocol = true, true, true, newestProtocol
	return is, client
}

// Wildcards stop at their bound while they are expanded, and what they come to is held in memory before.
func TestExpansionIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, maxMatches+askEvery, nil)
	is, _ := newTestSession(t, s)
	x := &expansion{session: is, left: maxMatches}
	var refused *refusal
	if all, err := x.expand(t.Context(), sourceOf("/*", false)); !errors.As(err, &refused) || errors.Is(err, errNoMemory) || all != nil || x.left != -1 {
		t.Fatalf("%d names, %d left: %v", len(all), x.left, err)
	}
	if least := int64(maxMatches) * namedCost; is.held < least {
		t.Errorf("%d bytes are held for them, want %d", is.held, least)
	}
	// All paths together have that bound.
	x.left = maxMatches
	if all, err := x.expand(t.Context(), sourceOf("/instrument-00*/", false)); err != nil || len(all) != 1000 || x.left != maxMatches-1000 {
		t.Errorf("%d names, %d left, %v", len(all), x.left, err)
	}
	if all, err := x.expand(t.Context(), sourceOf("/*/../instrument-0000[0-3]", false)); err != nil || len(all) != 4 || x.left != maxMatches-1004 {
		t.Errorf("a path is expanded before what is not needed in it is taken out: %d names, %d left, %v", len(all), x.left, err)
	}
	if _, err := x.expand(t.Context(), sourceOf("/"+strings.Repeat("a/", maxPath)+"*", false)); !errors.As(err, &refused) {
		t.Error(err)
	}
}

// Nothing is listed for a client that has gone, or for a server that ends.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	s := newServer(t, 10*askEvery, nil)
	list := func(ctx context.Context, is *session) error {
		_, held, err := is.children(ctx, &folder{content: true, places: []place{{}}})
		is.view.done(held)
		return err
	}
	is, client := newTestSession(t, s)
	if err := is.filter.add("- nothing[[:alpha:]]*"); err != nil {
		t.Fatal(err)
	}
	if err := list(t.Context(), is); err != nil || is.looked != 10*askEvery {
		t.Fatalf("%d names, %v", is.looked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := list(ctx, is); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := io.WriteString(client, "what is not read yet"); err != nil {
		t.Fatal(err)
	}
	client.Close()
	testenv.Await(t, "the kernel knows that the client has gone", is.kernel.isClosed)
	is.looked = 0
	if err := list(t.Context(), is); !errors.Is(err, errGone) || is.looked > askEvery {
		t.Errorf("%d names were looked at, %v", is.looked, err)
	}
	if err := is.tick(t.Context()); err != nil {
		t.Errorf("each name is asked for: %v", err)
	}
	for range askEvery {
		if err := is.tick(t.Context()); err != nil {
			return
		}
	}
	t.Error("a long folder is listed to its end")
}

// Data that was written to a client does not count as taken yet.
func TestQueued(t *testing.T) {
	t.Parallel()
	is, client := newTestSession(t, newServer(t, 1, nil))
	written := make(chan error, 1)
	go func() {
		_, err := is.conn.Write(make([]byte, 16<<20))
		written <- err
	}()
	testenv.Await(t, "data waits for the client", func() bool { return is.kernel.queued() > 0 })
	if _, err := io.CopyN(io.Discard, client, 16<<20); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "all is acknowledged", func() bool { return is.kernel.queued() == 0 })
	is.out.data = 16 << 20
	if err := is.countWait(time.Now(), errTakes); err != nil || is.pace.moved != 16<<20 {
		t.Errorf("%d bytes are taken, %v", is.pace.moved, err)
	}
}

// A client may take its time for some things while others wait for their turn, and more while no other client
// waits.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// every so often the client sends a keep-alive, and so many bytes move
		every time.Duration
		moves int64
		// busy and idle are how long it stays, while others wait and while none does; 0: for a day
		busy, idle time.Duration
	}{
		{"says that it is alive", 9 * time.Second, 0, grace, aliveTimeout},
		{"says that it is alive, with a request now and then", 100 * time.Second, 7, grace, 0},
		{"a byte a second", time.Second, 1, grace, 0},
		{"1 kB/s", time.Second, 1000, 0, 0},
		{"1 kB/s, which come every 8 s", 8 * time.Second, 8000, 0, 0},
		{"35 kbit/s", 8 * time.Second, 35_000, 0, 0},
		{"a file that takes half a minute to compare, then 1 MiB", 29 * time.Second, 1 << 20, grace, 0},
		{"says nothing", 20 * time.Minute, 0, grace, idleTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			for wanted, want := range map[bool]time.Duration{true: c.busy, false: c.idle} {
				p := pace{bounds: defaultBounds}
				var heard, moved int64
				var err error
				long := time.Duration(0)
				for ; err == nil && long < 24*time.Hour; long += lookEvery {
					if long > 0 && long%c.every == 0 {
						heard += 4 + c.moves
						moved += c.moves
					}
					err = p.addWait(lookEvery, heard, moved, wanted, errAsks)
				}
				if ended := errors.Is(err, errSlow); ended != (want > 0) || ended && (long < want || long > want+want/2) {
					t.Errorf("wanted %t: ended after %s, want %s: %v", wanted, long, want, err)
				}
			}
		})
	}
}

// end is a client's end of a connection from some address.
type end struct {
	net.Conn
	address string
}

func (e end) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(e.address), Port: 1024} }

// connect has a client of an address say something first, and returns what it is answered until one of some words
// comes, or the end.
func connect(s *Server, address, says string) (client net.Conn, answer func(...string) string) {
	client, conn := net.Pipe()
	s.take(end{conn, address})
	go io.WriteString(client, says)
	return client, func(words ...string) string {
		var all strings.Builder
		for b := make([]byte, 1); ; {
			if _, err := client.Read(b); err != nil {
				return all.String()
			}
			all.Write(b)
			for _, word := range words {
				if strings.HasSuffix(all.String(), word) {
					return all.String()
				}
			}
		}
	}
}

// says has a client say something, and something else every nine seconds.
func says(ctx context.Context, client net.Conn, first, drip string) {
	defer client.Close()
	_, err := io.WriteString(client, first)
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(9 * time.Second):
			_, err = io.WriteString(client, drip)
		}
	}
}

const (
	greeting = "@RSYNCD: 32.0 md5\nthule\n"
	// everything asks for all, with no filter.
	everything = "--server\x00--sender\x00-logDtpre.iLsfxCIvu\x00.\x00thule/\x00\x00\x03md5\x04\x00\x00\x07\x00\x00\x00\x00"
	alive      = "\x00\x00\x00\x31" // a frame that is no data
	// deleted is a request that is answered at any time: it lists what was deleted.
	deleted = "\x0b\x00\x00\x07\xff\xfe\x80\x03\x00\x00\x00\x00\x00\x00\x00"
)

// Clients that have all turns and do nothing but say that they are alive give way to others, and only then.
func TestTurnsAreNotHeld(t *testing.T) {
	t.Parallel()
	for name, drip := range map[string]string{"alive": alive, "requests": deleted} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, 3, func(c *Config) { c.MaxTransfers = 4 })
				ctx, stop := context.WithCancel(t.Context())
				for _, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"} {
					client, _ := connect(s, address, greeting+everything)
					go io.Copy(io.Discard, client)
					go says(ctx, client, "", drip)
					synctest.Wait()
				}
				if held := testutil.ToFloat64(s.metrics.open); held != 4 {
					t.Fatalf("%v of 4 turns are held", held)
				}
				time.Sleep(20 * time.Minute)
				slow := s.metrics.ended.WithLabelValues(endedSlow)
				if cut := testutil.ToFloat64(slow); cut != 0 || testutil.ToFloat64(s.metrics.open) != 4 {
					t.Errorf("%v clients are cut off while nobody waits", cut)
				}
				before := testutil.ToFloat64(s.metrics.transfers)
				client, _ := connect(s, "192.0.2.9", greeting+everything)
				go io.Copy(io.Discard, client)
				time.Sleep(turnPatience)
				if after := testutil.ToFloat64(s.metrics.transfers); after != before+1 {
					t.Errorf("no turn was left: %v transfers before, %v after", before, after)
				}
				client.Close()
				stop()
				synctest.Wait()
				if cut := testutil.ToFloat64(slow); cut == 0 {
					t.Error("nobody is cut off")
				}
				s.open.Wait()
			})
		})
	}
}

// A client that has a turn has to say what it is for: all that comes before the list has one time limit.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"greeting": {"@RSYNCD: 32.0", " "}, "arguments": {greeting, "-v\x00"}, "filter": {greeting + everything[:strings.Index(everything, "md5")+3], alive},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, 3, nil)
				first, drip := c[0], c[1]
				client, answer := connect(s, "192.0.2.1", first)
				ctx, stop := context.WithCancel(t.Context())
				go says(ctx, client, "", drip)
				answer()
				if cut := testutil.ToFloat64(s.metrics.ended.WithLabelValues(endedSlow)); cut != 1 {
					t.Errorf("%v are cut off", cut)
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

// Clients that name the module and then say nothing have no turn, from however many addresses: others are served at once.
func TestSilentStartsHoldNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, 3, func(c *Config) { c.MaxTransfers = 4 })
		for i := range 12 {
			client, _ := connect(s, fmt.Sprintf("192.0.2.%d", i%4+1), greeting)
			defer client.Close()
			go io.Copy(io.Discard, client)
		}
		synctest.Wait()
		client, _ := connect(s, "192.0.2.9", greeting+everything)
		defer client.Close()
		go io.Copy(io.Discard, client)
		synctest.Wait()
		if got := testutil.ToFloat64(s.metrics.transfers); got != 1 {
			t.Errorf("%v transfers begin while others say nothing", got)
		}
	})
}

// A client that does not say what it wants has 30 seconds while no other waits for a turn, and 5 otherwise.
func TestBusyStart(t *testing.T) {
	t.Parallel()
	for waiting, want := range map[bool]time.Duration{false: startTimeout, true: busyStart} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, 3, func(c *Config) { c.MaxTransfers = 1 })
			ctx, stop := context.WithCancel(t.Context())
			if waiting {
				for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
					client, _ := connect(s, address, greeting+everything)
					go io.Copy(io.Discard, client)
					go says(ctx, client, "", alive)
					synctest.Wait()
				}
			}
			_, answer := connect(s, "192.0.2.3", greeting)
			since := time.Now()
			answer()
			if took := time.Since(since).Round(lookEvery); took != want {
				t.Errorf("waiting %t: it is cut off after %s, want %s", waiting, took, want)
			}
			stop()
			synctest.Wait()
		})
	}
}

// All clients together may hold a bounded amount of memory before their turns, and it is released.
func TestStartsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, 3, nil)
		s.starts = semaphore.NewWeighted(smallStart)
		long := greeting + strings.Repeat("--exclude="+strings.Repeat("a", 1000)+"\x00", 60)
		client, answer := connect(s, "192.0.2.1", long)
		answer()
		if cut := testutil.ToFloat64(s.metrics.ended.WithLabelValues(endedSlow)); cut != 1 {
			t.Errorf("%v clients are cut off", cut)
		}
		client.Close()
		synctest.Wait()
		if !s.starts.TryAcquire(smallStart) {
			t.Error("the memory is not given back")
		}
	})
}
