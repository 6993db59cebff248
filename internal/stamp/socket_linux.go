// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a UDP socket that also tells when the kernel received a packet, at
// which of our addresses and with which TTL; answers leave from that address.
type socket struct {
	*net.UDPConn
	control []byte
}

func listen(address string) (*socket, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			set := func(level, option int) error { return unix.SetsockoptInt(int(fd), level, option, 1) }
			// On a socket for IPv6 the options for IPv4 concern packets that come by IPv4;
			// a socket for IPv4 has none for IPv6. Options that cannot be set
			// are done without.
			_ = set(unix.IPPROTO_IP, unix.IP_RECVTTL)
			_ = set(unix.IPPROTO_IP, unix.IP_PKTINFO)
			_ = set(unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT)
			_ = set(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO)
			failed = set(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS)
		})
		return errors.Join(err, failed)
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return nil, err
	}
	return &socket{UDPConn: conn.(*net.UDPConn), control: make([]byte, 512)}, nil
}

// receive reads a packet into b. The result is valid until the next call.
func (s *socket) receive(b []byte) (received, error) {
	n, m, _, from, err := s.ReadMsgUDPAddrPort(b, s.control)
	if err != nil {
		return received{}, err
	}
	p := received{payload: b[:n], from: from, at: time.Now()}
	messages, err := unix.ParseSocketControlMessage(s.control[:m])
	if err != nil {
		return p, nil // it goes without
	}
	for _, c := range messages {
		p.note(c.Header.Level, c.Header.Type, c.Data)
	}
	return p, nil
}

// note takes what the kernel says of a packet.
func (p *received) note(level, kind int32, data []byte) {
	switch {
	case level == unix.SOL_SOCKET && kind == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
		at := *(*unix.Timespec)(unsafe.Pointer(&data[0]))
		p.at = time.Unix(at.Unix())
	case level == unix.IPPROTO_IP && kind == unix.IP_TTL && len(data) >= 4,
		level == unix.IPPROTO_IPV6 && kind == unix.IPV6_HOPLIMIT && len(data) >= 4:
		p.ttl = uint8(binary.NativeEndian.Uint32(data))
	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0]))
		p.to = netip.AddrFrom4(info.Spec_dst)
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
		p.to = netip.AddrFrom16(info.Addr).Unmap()
		if p.to.IsLinkLocalUnicast() {
			p.zone = int(info.Ifindex)
		}
	}
}

// answer sends to whom a packet came from, from the address that it came to.
func (s *socket) answer(b []byte, p received) error {
	var control []byte
	switch {
	case p.to.Is4():
		control = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: p.to.As4()})
	case p.to.Is6():
		control = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: p.to.As16(), Ifindex: uint32(p.zone)})
	}
	_, _, err := s.WriteMsgUDPAddrPort(b, control, p.from)
	return err
}
