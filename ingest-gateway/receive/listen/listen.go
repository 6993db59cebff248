// SPDX-License-Identifier: Apache-2.0

// Package listen opens the ports of the listeners for TCP and HTTP, and accepts no more
// connections than may be open. The packages for TCP and HTTP read and answer them.
package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// retryAccept is the pause after an accept that failed: out of file descriptors,
// or the peer is gone again.
const retryAccept = 100 * time.Millisecond

// Config is what the listeners of a protocol have in common.
type Config struct {
	// Protocol is the listener's, for the log.
	Protocol string
	// Slots bound the connections open at a time; where all are held by identified
	// senders, the kernel's queues hold new ones.
	Slots *Slots
	// Abort gives each connection SO_LINGER{1,0} from the start: unless that is undone,
	// its end is a reset, also where the process dies.
	Abort bool
	// Address is the IP address on which ports are opened; empty: all.
	Address string
	Logger  *slog.Logger
}

// Listener accepts the connections of one port.
type Listener struct {
	net.Listener
	Port uint16
	cfg  *Config
}

// Open opens a port. Errors are the kernel's.
func Open(cfg *Config, port uint16) (*Listener, error) {
	return OpenAddress(cfg, net.JoinHostPort(cfg.Address, strconv.Itoa(int(port))))
}

// OpenAddress opens a port of an address, host:port. Errors are the kernel's.
func OpenAddress(cfg *Config, address string) (*Listener, error) {
	// Linux gives accepted sockets the options of the one that listens, so each
	// connection needs no calls of its own for them.
	options := net.ListenConfig{KeepAlive: -1, Control: cfg.control}
	l, err := options.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{Listener: l, Port: l.Addr().(*net.TCPAddr).AddrPort().Port(), cfg: cfg}, nil
}

// keepAlive is after how much silence the kernel asks whether the peer is still
// there, and how often, in seconds; keepAlives is how many answers may be missing.
const keepAlive, keepAlives = 15, 9

func (c *Config) control(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		s := int(fd)
		failed = errors.Join(
			unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
			unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive),
			unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive),
			unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlives),
		)
		if c.Abort {
			failed = errors.Join(failed, unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		}
	})
	return errors.Join(err, failed)
}

// AcceptTCP waits for a connection and for a slot, which the caller releases. The
// only error is net.ErrClosed: the port was closed, or ctx ended first.
func (l *Listener) AcceptTCP(ctx context.Context) (*net.TCPConn, *Slot, error) {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, nil, net.ErrClosed
		}
		if err != nil {
			l.cfg.Logger.Warn("accept failed", "protocol", l.cfg.Protocol, "port", l.Port, "error", err)
			time.Sleep(retryAccept)
			continue
		}
		conn := c.(*net.TCPConn)
		slot, err := l.cfg.Slots.Acquire(ctx, Source(conn), func() { Reset(conn) })
		if err != nil {
			_ = conn.Close()
			return nil, nil, net.ErrClosed
		}
		return conn, slot, nil
	}
}

// Reset ends a connection by a reset, which no client takes for an answer.
func Reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// Source is where a connection comes from; IPv4 as such.
func Source(conn *net.TCPConn) netip.AddrPort {
	return Unmapped(conn.RemoteAddr().(*net.TCPAddr).AddrPort())
}

// Unmapped is an address as instruments' sources are compared with it.
func Unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// Ports are the open ports of one protocol. Its methods may be called from many
// goroutines.
type Ports struct {
	cfg   Config
	serve func(*Listener)

	mu     sync.Mutex
	open   map[uint16]*Listener
	closed bool
}

// New returns no ports. Each that opens is served by a goroutine, until it is
// closed.
func New(cfg Config, serve func(*Listener)) *Ports {
	return &Ports{cfg: cfg, serve: serve, open: map[uint16]*Listener{}}
}

// Set makes ports the set of ports that are received from, and returns an error for each that could
// not be opened. Connections of a port that closes continue.
func (p *Ports) Set(ports []uint16) map[uint16]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	for port, l := range p.open {
		if !slices.Contains(ports, port) {
			delete(p.open, port)
			_ = l.Close()
			p.cfg.Logger.Info("stopped listening", "protocol", p.cfg.Protocol, "port", port)
		}
	}
	failed := map[uint16]error{}
	for _, port := range ports {
		if p.open[port] != nil {
			continue
		}
		l, err := Open(&p.cfg, port)
		if err != nil {
			failed[port] = err
			continue
		}
		p.open[port] = l
		go p.serve(l)
		p.cfg.Logger.Info("listening", "protocol", p.cfg.Protocol, "port", port)
	}
	return failed
}

// Has says whether a port is open.
func (p *Ports) Has(port uint16) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[port] != nil
}

// Close closes all ports for good. Connections continue.
func (p *Ports) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.open {
		_ = l.Close()
	}
	clear(p.open)
}
