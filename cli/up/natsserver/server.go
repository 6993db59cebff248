// SPDX-License-Identifier: Apache-2.0

// Package natsserver runs a NATS server with JetStream inside this process, in operator mode, with every write synced but those to streams
// of persist_mode async.
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTimeout is how long recovery of the streams may take: a disk that has to read 10 GB of them at 50 MB/s.
const startTimeout = 4 * time.Minute

// maxPayload of a message, in bytes: as the quickstart's servers have it.
const maxPayload = 1 << 20

// Config of a server.
type Config struct {
	// Dir keeps streams and configuration. It is made with mode 0700.
	Dir string
	// Domain is the JetStream domain: the Site's code.
	Domain string
	// Accounts is the part of the configuration that says who the operator is and which accounts there are, see natsaccounts.Config.
	Accounts []byte
	// Listen is host:port for clients of other processes; empty for none.
	Listen string
	// MaxStore is how many bytes all streams together may declare as their maximum; a stream above it is refused when it is made.
	MaxStore int64
	// Log gets what the server says.
	Log *slog.Logger
}

// Server is a running server.
type Server struct {
	nats atomic.Pointer[server.Server]
	// opts are what it is started with, dir and domain are those of Config.
	opts        *server.Options
	dir, domain string
	log         *logger
	link        *uplink
	// starting is held while the server is started or stopped; stopped: it stays so.
	starting sync.Mutex
	stopped  bool
	syncs    syncs
	staging  staging
}

// Start starts a server and returns once JetStream has recovered its streams. Errors: a configuration that cannot be used, a folder
// that cannot be written, an address in use.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	link := &uplink{}
	s := &Server{opts: opts, dir: cfg.Dir, domain: cfg.Domain, link: link, log: &logger{log: cfg.Log, link: &link.problems}, staging: newStaging()}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// start starts the server.
func (s *Server) start(ctx context.Context) error {
	if err := os.RemoveAll(credentialsDir(s.dir)); err != nil { // Link links again
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	n, err := server.NewServer(s.opts.Clone()) // the server adds what follows from them
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	s.log.forget()
	n.SetLoggerV2(s.log, false, false, false)
	n.Start()
	if err := await(ctx, n); err != nil {
		n.Shutdown()
		n.WaitForShutdown()
		return fmt.Errorf("embedded NATS server in %s: %w", s.dir, errors.Join(err, s.log.fatal()))
	}
	s.nats.Store(n)
	s.stage(ctx)
	return nil
}

// await returns once the server takes connections and JetStream answers.
func await(ctx context.Context, s *server.Server) error {
	end := time.Now().Add(startTimeout)
	for !s.ReadyForConnections(50*time.Millisecond) || !s.JetStreamEnabled() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !s.Running():
			return errors.New("it stopped while it started")
		case time.Now().After(end):
			return fmt.Errorf("JetStream is not ready after %s", startTimeout)
		}
	}
	return nil
}

// InProcessConn returns a connection without a socket: see nats.InProcessServer.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.Load().InProcessConn() }

// longestSocket is the longest path of a Unix socket, in bytes: see unix(7).
const longestSocket = 107

// ServeSocket has other processes of this user in at a Unix socket, whose file it makes, until ctx ends.
func (s *Server) ServeSocket(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil && len(path) > longestSocket {
		return fmt.Errorf("%w: the path of a Unix socket has %d bytes at most: choose a data folder with a shorter one", err, longestSocket)
	}
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go s.join(conn)
	}
}

// join passes on what a connection and the server say to each other, until one of them ends.
func (s *Server) join(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	inside, err := s.InProcessConn()
	if err != nil {
		return
	}
	defer func() { _ = inside.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{inside, conn}, {conn, inside}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // ends with either of them
			ended <- struct{}{}
		}()
	}
	<-ended
}

// Healthy errs where the server does not run, has disabled JetStream, or where a write of a stream failed, on a full disk say: that
// stream takes nothing more until the server is started again, see Tend.
func (s *Server) Healthy() error {
	n := s.nats.Load()
	switch problem := s.log.writeFailure(); {
	case !n.Running():
		return errors.New("the embedded NATS server does not run")
	case !n.JetStreamEnabled():
		return errors.New("the embedded NATS server has disabled JetStream: the log says why")
	case problem != "":
		return fmt.Errorf("the embedded NATS server could not write: %s", problem)
	}
	return nil
}

// Stop closes all connections and the streams' files.
func (s *Server) Stop() {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.stopped = true
	s.stop()
	s.unstage()
}

func (s *Server) stop() {
	n := s.nats.Load()
	n.Shutdown()
	n.WaitForShutdown()
}

// options reads the accounts as the server reads its configuration file: in a file of its own, since keys are in it.
func (c Config) options() (*server.Options, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	// The server's own bound, three quarters of what the disk has free when it starts, would refuse every write for as long as it runs where the
	// disk was full then. MaxStore does not depend on what is free, which the disk budget watches.
	opts := &server.Options{
		ServerName: "substorm-" + c.Domain, NoSigs: true, NoLog: true, MaxPayload: maxPayload,
		JetStream: true, JetStreamMaxStore: c.MaxStore, JetStreamDomain: c.Domain, StoreDir: filepath.Join(c.Dir, "streams"), SyncAlways: true, DontListen: c.Listen == "",
		LeafNode: server.LeafNodeOpts{ReconnectInterval: reconnectEvery}, ConnectErrorReports: reportEvery, ReconnectErrorReports: reportEvery,
	}
	file := filepath.Join(c.Dir, "accounts.conf")
	if err := os.WriteFile(file, c.Accounts, 0o600); err != nil {
		return nil, err
	}
	if err := opts.ProcessConfigFile(file); err != nil {
		return nil, err
	}
	if c.Listen == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", c.Listen, err)
	}
	if opts.Port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("listen at %q: %w", c.Listen, err)
	}
	opts.Host = host
	return opts, nil
}
