// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// lastLook is how long to wait for a host's report that a port is closed, after the last datagram.
const lastLook = 300 * time.Millisecond

// socket sends datagrams to one address. The host of a closed port reports that (ICMP port unreachable): an error of the next call, after
// a datagram that is lost.
type socket struct {
	conn    net.Conn
	address string
}

// dial opens so many sockets, spread over the addresses: as many source ports.
func dial(addresses []string, n int) ([]*socket, error) {
	var all []*socket
	for i := range n {
		address := addresses[i%len(addresses)]
		conn, err := net.Dial("udp", address)
		if err != nil {
			for _, s := range all {
				s.conn.Close()
			}
			return nil, err
		}
		all = append(all, &socket{conn: conn, address: address})
	}
	return all, nil
}

// datagrams sends over UDP.
func (r *run) datagrams(ctx context.Context) {
	buffer := make([]byte, maxDatagram)
	r.due(ctx, UDP, func(e event) bool {
		sockets := r.sockets[e.source]
		b := buffer[:e.size]
		r.payloads.fill(b, e)
		s := sockets[(uint64(e.instrument)+e.number)%uint64(len(sockets))]
		_, err := s.conn.Write(b)
		if err != nil { // of a datagram before: this one was not sent
			r.tally.lost(e.source, s.explain(err))
			_, err = s.conn.Write(b)
		}
		if err != nil {
			r.tally.unsent(e.source, s.explain(err))
		} else {
			r.tally.sent(e.source, e.size)
		}
		return true
	})
	r.lookBack()
}

// lookBack hears what hosts say after the last datagram.
func (r *run) lookBack() {
	end := time.Now().Add(lastLook)
	for source, sockets := range r.sockets {
		for _, s := range sockets {
			if s.conn.SetReadDeadline(end) != nil {
				continue
			}
			if _, err := s.conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				r.tally.lost(source, s.explain(err))
			}
		}
	}
}

func (s *socket) explain(err error) string {
	return fmt.Sprintf("%s: %v: does anything listen there?", s.address, err)
}
