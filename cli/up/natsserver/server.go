// SPDX-License-Identifier: Apache-2.0

// Package natsserver runs a NATS server with JetStream inside this process, in operator mode, with every write synced.
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
	// Log gets what the server says.
	Log *slog.Logger
}

// Server is a running server.
type Server struct {
	nats *server.Server
	// opts are what it was started with, dir and domain are those of Config.
	opts        *server.Options
	dir, domain string
	link        *uplink
}

// Start starts a server and returns once JetStream has recovered its streams. Errors: a configuration that cannot be used, a folder
// that cannot be written, an address in use.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	opts, err := cfg.options()
	if err == nil {
		err = os.RemoveAll(credentialsDir(cfg.Dir)) // a link is made anew
	}
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	declared := opts.Clone() // the server adds what follows from them
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	link := &uplink{}
	log := &logger{log: cfg.Log, link: &link.problems}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	if err := await(ctx, s); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("embedded NATS server in %s: %w", cfg.Dir, errors.Join(err, log.fatal()))
	}
	return &Server{nats: s, opts: declared, dir: cfg.Dir, domain: cfg.Domain, link: link}, nil
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
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }

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
	inside, err := s.nats.InProcessConn()
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

// Healthy errs where the server does not run, or has disabled JetStream, as it does when the disk is full: it stores nothing then until
// it is started anew.
func (s *Server) Healthy() error {
	switch {
	case !s.nats.Running():
		return errors.New("the embedded NATS server does not run")
	case !s.nats.JetStreamEnabled():
		return errors.New("the embedded NATS server has disabled JetStream: the log says why, a full disk perhaps")
	}
	return nil
}

// Stop closes all connections and the streams' files.
func (s *Server) Stop() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// options reads the accounts as the server reads its configuration file: in a file of its own, since keys are in it.
func (c Config) options() (*server.Options, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	// JetStreamMaxStore stays the server's own: three quarters of what the disk has free when it starts, and of what its streams hold. Each
	// stream of a Site declares how much it may hold; so one that the disk cannot hold beside the others is refused when it is made, which a
	// greater number would allow, and a smaller one would refuse what fits.
	opts := &server.Options{
		ServerName: "substorm-" + c.Domain, NoSigs: true, NoLog: true, MaxPayload: maxPayload,
		JetStream: true, JetStreamDomain: c.Domain, StoreDir: filepath.Join(c.Dir, "streams"), SyncAlways: true, DontListen: c.Listen == "",
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
