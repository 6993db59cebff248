// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stamp

import (
	"net"
	"time"
)

// socket is a UDP socket. Times are those at which the program reads.
type socket struct{ *net.UDPConn }

func listen(address string) (*socket, error) {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, err
	}
	return &socket{conn}, nil
}

func (s *socket) receive(b []byte) (received, error) {
	n, from, err := s.ReadFromUDPAddrPort(b)
	return received{payload: b[:n], from: from, at: time.Now()}, err
}

func (s *socket) answer(b []byte, p received) error {
	_, err := s.WriteToUDPAddrPort(b, p.from)
	return err
}
