// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/load"
	"github.com/substorm/substorm/internal/metric"
)

// Sockets bound the TCP connections of a server, including those of clients that send no request.
// If the bound is reached, a new connection is accepted all the same, since its client
// authenticates only later: a connection without credentials is closed, of the address that has the
// most of these, idle ones first and then the oldest. A connection that has shown a valid token or
// certificate is never closed for another, nor is the connection of a trusted proxy, which serves
// many clients.
type Sockets struct {
	most    int
	proxies Proxies
	closed  prometheus.Counter

	mu   sync.Mutex
	last uint64 // number of the newest
	all  map[net.Conn]*socket
	// of are the connections without credentials by address, the oldest in front, and ofNetwork their number by
	// network of 48 bits.
	of        map[netip.Addr]*list.List
	ofNetwork map[netip.Addr]int
}

type socket struct {
	conn    net.Conn
	address netip.Addr
	number  uint64
	idle    bool
	place   *list.Element // nil: it is not closed for another
}

// NewSockets bounds them; most 0: nothing does.
func NewSockets(most int, proxies Proxies, metrics prometheus.Registerer) *Sockets {
	return &Sockets{
		most: most, proxies: proxies, all: map[net.Conn]*socket{}, of: map[netip.Addr]*list.List{}, ofNetwork: map[netip.Addr]int{},
		closed: metric.Counter(metrics, "substorm_feed_sockets_closed_total",
			"Connections of TCP that had shown no token and were closed for others, as there were as many as may be."),
	}
}

// ConnState is an http.Server's. Connections that are hijacked are bounded by Places.
func (s *Sockets) ConnState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open(c)
	case http.StateClosed, http.StateHijacked:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(s.all[c])
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if k := s.all[c]; k != nil {
			k.idle = state == http.StateIdle
		}
	}
}

// open counts a connection, and closes others if there are too many.
func (s *Sockets) open(c net.Conn) {
	address := network64(remoteOf(c.RemoteAddr().String()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	k := &socket{conn: c, address: address, number: s.last, idle: true}
	s.all[c] = k
	if !s.proxies.trust(remoteOf(c.RemoteAddr().String())) {
		same := s.of[address]
		if same == nil {
			same = list.New()
			s.of[address] = same
		}
		k.place = same.PushBack(k)
		s.ofNetwork[network48(address)]++
	}
	if s.most <= 0 {
		return
	}
	for len(s.all) > s.most {
		victim := s.victim()
		if victim == nil {
			victim = k // all others have shown who they are
		}
		s.forget(victim)
		s.closed.Inc()
		abort(victim.conn)
	}
}

// Fill is which part of the connections that there may be is open, 0 to 1.
func (s *Sockets) Fill() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return load.Fill(len(s.all), s.most)
}

// victim is the connection to be closed, nil: none may be. An address that has more
// than others loses one, of the network of 48 bits that has more than others, of several such the one that has had its oldest for longest.
func (s *Sockets) victim() *socket {
	var most *list.List
	network := 0
	for address, same := range s.of {
		all := s.ofNetwork[network48(address)]
		if most == nil || cmp.Or(cmp.Compare(all, network), cmp.Compare(same.Len(), most.Len()), cmp.Compare(oldest(most).number, oldest(same).number)) > 0 {
			most, network = same, all
		}
	}
	if most == nil {
		return nil
	}
	for e := most.Front(); e != nil; e = e.Next() {
		if k := e.Value.(*socket); k.idle {
			return k
		}
	}
	return oldest(most)
}

func oldest(same *list.List) *socket { return same.Front().Value.(*socket) }

// forget ends what is known of a connection.
func (s *Sockets) forget(k *socket) {
	if k == nil || s.all[k.conn] != k {
		return
	}
	delete(s.all, k.conn)
	s.release(k)
}

func (s *Sockets) release(k *socket) {
	if k.place == nil {
		return
	}
	same := s.of[k.address]
	if same.Remove(k.place); same.Len() == 0 {
		delete(s.of, k.address)
	}
	if network := network48(k.address); s.ofNetwork[network] == 1 {
		delete(s.ofNetwork, network)
	} else {
		s.ofNetwork[network]--
	}
	k.place = nil
}

// Identified records that a request has shown a valid token or certificate: its connection is not
// closed for others.
func (s *Sockets) Identified(r *http.Request) {
	c := ConnectionOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.all[c]; k != nil {
		s.release(k)
	}
}

// abort closes a connection at once: TLS would wait for its client.
func abort(c net.Conn) {
	if secure, is := c.(interface{ NetConn() net.Conn }); is {
		c = secure.NetConn()
	}
	_ = c.Close()
}
