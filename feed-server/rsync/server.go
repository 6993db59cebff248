// SPDX-License-Identifier: Apache-2.0

// Package rsync serves the archive to programs that copy it with rsync: the sending half
// of the protocol of rsync's daemon, read only, without a name or password. A client gets
// what everybody may read of what was received in a window of some days, as the archive
// over HTTP publishes it: <instrument>/<path>.
//
// No Go library speaks this half of the protocol, and rsync itself would need the window
// as files on a disk. Lists come from the manifests and bytes from the store, so what a
// transfer takes in memory does not grow with the window: lists are sent one directory at
// a time, and are forgotten when the client is done with it.
package rsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultWindow is how far back the module reaches by default.
	DefaultWindow = 60 * 24 * time.Hour
	// transferCost is what a transfer takes in memory beside its lists: what is fetched,
	// sums of blocks, buffers, and what compresses.
	transferCost = 8 << 20
	// startMemory is what options and filters of clients take together that have no turn yet, beside smallStart of each, which
	// is part of what its connection takes.
	startMemory, smallStart = 16 << 20, 16 << 10
	// DefaultMemory is Config.Memory by default.
	DefaultMemory = 16 * transferCost
	// acceptPause is between tries to accept a connection.
	acceptPause = 50 * time.Millisecond
	// linesPerSecond and linesAtOnce bound lines of the log about clients that are cut off.
	linesPerSecond, linesAtOnce = 1, 20
	// classOfAll is the class of all clients.
	classOfAll = endpoint.Robot
)

// Catalog knows what the archive holds. internal/catalog is one.
type Catalog interface {
	// Days returns the days that have objects, ascending.
	Days(ctx context.Context, instrument string) ([]wire.RootDay, error)
	// Day returns the objects of a day, in the order of paths.
	Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error)
}

// Config says what is served.
type Config struct {
	// Site is the Site's code, and the module's name.
	Site string
	// Listen is host:port.
	Listen string
	// Window is how far back the module reaches, by time of receipt.
	Window time.Duration
	// BaseURL is the address of the whole archive that clients get; may be empty.
	BaseURL   string
	Catalog   Catalog
	Store     objectstore.Store
	Registry  func() *registry.Snapshot
	Admission *endpoint.Admission
	// Memory bounds what transfers take, and so how many there are at a time, in bytes.
	Memory int64
	// MaxTransfers bounds how many there are at a time; 0: Memory does.
	MaxTransfers int
	// Count is endpoint.AccessCheckConfig's: it is called once for each transfer and instrument.
	Count func(instrument, reader string, class endpoint.Class, status int, bytes int64)
	// Damaged is endpoint.AccessCheckConfig's.
	Damaged func(instrument string, r wire.Record, missing bool)
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Server serves one module.
type Server struct {
	cfg      Config
	listener net.Listener
	turns    *endpoint.Turns
	bounds   bounds
	// lines bounds the log lines about clients that are cut off; untold are further ones.
	lines  *rate.Limiter
	untold atomic.Int64
	// memory is for lists, of all transfers together, and starts for options and filters of clients that have no turn yet.
	memory, starts *semaphore.Weighted
	// sums are the sums of requested files, and budget bounds what is read for them.
	sums    *sumCache
	budget  *endpoint.Budget
	metrics *metrics

	mu       sync.Mutex
	draining bool
	open     sync.WaitGroup
	alive    context.Context
	end      context.CancelFunc
}

// New listens, so that an address in use is an error here; Run answers.
func New(cfg Config) (*Server, error) {
	if cfg.Memory <= 0 {
		cfg.Memory = DefaultMemory
	}
	if cfg.Window <= 0 {
		cfg.Window = DefaultWindow
	}
	l, err := endpoint.Listen(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve rsync: %w", err)
	}
	transfers := max(2, int(cfg.Memory/2/transferCost))
	if cfg.MaxTransfers > 0 {
		transfers = min(transfers, cfg.MaxTransfers)
	}
	s := &Server{
		cfg: cfg, listener: l, turns: endpoint.NewOpenTurns(transfers, turnPatience), bounds: defaultBounds, lines: rate.NewLimiter(linesPerSecond, linesAtOnce), metrics: newMetrics(cfg.Metrics),
		memory: semaphore.NewWeighted(max(cfg.Memory/2, cfg.Memory-int64(transfers)*transferCost)), starts: semaphore.NewWeighted(startMemory),
		sums: newSumCache(keptSums), budget: newSumBudget(),
	}
	s.metrics.limit.Set(float64(transfers))
	s.alive, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run answers until ctx ends; transfers that are under way stay so until Drain. It
// returns nil then, or why it cannot answer.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	for {
		conn, err := s.listener.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			s.cfg.Logger.Warn("cannot accept rsync connections", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		s.take(conn)
	}
}

// take has a connection answered.
func (s *Server) take(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		_ = conn.Close()
		return
	}
	s.cfg.Admission.Sockets.ConnState(conn, http.StateNew)
	s.open.Go(func() {
		defer s.cfg.Admission.Sockets.ConnState(conn, http.StateClosed)
		defer conn.Close()
		s.serve(conn)
	})
}

func (s *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.alive)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	is := s.newSession(conn, endpoint.RequestOfConnection(ctx, conn))
	err := is.serve(ctx)
	var late *slow
	switch remote := conn.RemoteAddr(); {
	case err == nil:
		s.metrics.ended.WithLabelValues(endedWhole).Inc()
	case errors.As(err, &late):
		s.metrics.cut.WithLabelValues(late.cause).Inc()
		s.metrics.ended.WithLabelValues(endedSlow).Inc()
		s.tell(slog.LevelInfo, "cut off an rsync client", "remote", remote, "error", err)
	case errors.Is(err, errMalformed): // any client can send anything, any number of times
		s.metrics.ended.WithLabelValues(endedMalformed).Inc()
		s.cfg.Logger.Debug("cut off an rsync client", "remote", remote, "error", err)
	case s.alive.Err() != nil:
		s.metrics.ended.WithLabelValues(endedStopped).Inc()
	case isGone(err):
		s.metrics.ended.WithLabelValues(endedGone).Inc()
		s.cfg.Logger.Debug("an rsync client disconnected", "remote", remote, "error", err)
	default:
		s.metrics.ended.WithLabelValues(endedFailed).Inc()
		s.tell(slog.LevelWarn, "cut off an rsync transfer: cannot read the archive", "remote", remote, "error", err)
	}
}

// tell writes a log line that clients can cause as often as they like: it logs some of them, with the number of omitted
// ones.
func (s *Server) tell(level slog.Level, text string, args ...any) {
	if !s.lines.Allow() {
		s.untold.Add(1)
		return
	}
	s.cfg.Logger.Log(context.Background(), level, text, append(args, "notLogged", s.untold.Swap(0))...)
}

// isGone reports whether an error is an error of the connection.
func isGone(err error) bool {
	var connection *clientError
	return errors.As(err, &connection) || errors.Is(err, errExit)
}

// admit lets a client say how it wants the module: as often as other endpoints let it ask.
func (s *session) admit() error {
	snapshot := s.cfg.Registry()
	if snapshot.Revision == 0 {
		return s.cannot(refusedStart, "this replica does not know the Site's Instruments yet: ask again in some seconds")
	}
	if p := s.cfg.Admission.Wait(s.request, endpoint.Identity{}); p != nil {
		return s.cannot(refusedLimited, p.Detail)
	}
	s.begins()
	s.out.text("@RSYNCD: OK\n")
	return s.out.flush()
}

// errFull: there is no turn for a transfer.
var errFull = errors.New("no turn")

// enter waits for the turn of a client that has sent its whole request: before that it would keep others out without a
// request. Errors: a refusal that is errFull, and those of goesOn.
func (s *session) enter(ctx context.Context) (leave func(), err error) {
	a := s.cfg.Admission
	entered, full := a.Enter(s.request, endpoint.Identity{}, endpoint.Bulk) // after the limits of clients, as over HTTP
	if full != nil {
		return nil, errors.Join(errFull, refuse(exitStart, "%s", full.Detail))
	}
	done, err := s.waitForTurn(ctx)
	if err != nil {
		entered()
		return nil, err
	}
	if done == nil {
		entered()
		return nil, errors.Join(errFull, refuse(exitStart, "this server has no memory for another transfer, or too many are yours: try again later"))
	}
	s.started()
	a.Sockets.ConnState(s.conn, http.StateActive) // others are closed before it
	return func() { done(); entered() }, nil
}

// waitForTurn takes a turn, which done gives back; nil: there is none. Meanwhile the client gets keep-alives. Errors: those of
// goesOn.
func (s *session) waitForTurn(ctx context.Context) (done func(), err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	taken := make(chan func(), 1)
	go func() {
		done, _ := s.turns.TakeAs(waiting, s.cfg.Admission.AddressOf(s.request))
		taken <- done
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case done := <-taken:
			return done, nil
		case <-look.C:
		}
		if err := s.checkClient(ctx); err != nil {
			cancel()
			if done := <-taken; done != nil {
				done()
			}
			return nil, err
		}
	}
}

// errRefused: the client got the reason.
var errRefused = errors.New("refused")

func (s *session) cannot(reason, text string) error {
	if err := s.refuseStart(reason, text); err != nil {
		return err
	}
	return errRefused
}

// Drain lets transfers end, and cuts off those that do not end before ctx does: clients continue
// with another replica.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	_ = s.listener.Close()
	done := make(chan struct{})
	go func() {
		s.open.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.end()
		<-done
		return ctx.Err()
	}
}
