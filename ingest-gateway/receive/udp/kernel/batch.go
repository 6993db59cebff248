// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

const (
	// batchSize is how many datagrams one system call may return: at 64 the
	// call's own cost is already below a tenth of a datagram's.
	batchSize = 64
	// maxDatagram is the greatest payload of a UDP datagram, rounded up.
	maxDatagram = 64 << 10
	// stride is from one payload to the next: a power of two would put all of them into the same few lines of the
	// processor's caches.
	stride = maxDatagram + 3*64
	// controlSize has space for a timestamp and a drop count.
	controlSize = 64
)

// header is the kernel's struct mmsghdr.
type header struct {
	unix.Msghdr
	n uint32
	_ [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// batchMemory is the address space of a batch; only the bytes that datagrams fill are ever
// resident.
const batchMemory = batchSize * stride

// batch is the memory of one recvmmsg, used again and again. Its payloads are no part of Go's heap: there, memory that is
// hardly touched would count in full, and have the collector run all the time under a memory limit.
type batch struct {
	port     uint16
	headers  [batchSize]header
	iovecs   [batchSize]unix.Iovec
	names    [batchSize]unix.RawSockaddrInet6
	controls [batchSize][controlSize]byte
	payloads []byte
	out      [batchSize]udp.Packet
}

// newBatch returns a batch, which its owner frees.
func newBatch() (*batch, error) {
	payloads, err := unix.Mmap(-1, 0, batchMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory for datagrams: %w", err)
	}
	b := &batch{payloads: payloads}
	for i := range b.headers {
		b.iovecs[i].Base = &b.payloads[i*stride]
		b.iovecs[i].SetLen(maxDatagram)
		h := &b.headers[i]
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Iov = &b.iovecs[i]
		h.SetIovlen(1)
		h.Control = &b.controls[i][0]
	}
	return b, nil
}

// free gives the memory back. Nothing may use the batch, or a packet of it, after.
func (b *batch) free() { _ = unix.Munmap(b.payloads) }

// receive fills the batch without waiting: n datagrams, or EAGAIN.
func (b *batch) receive(fd uintptr) (int, syscall.Errno) {
	for i := range b.headers {
		h := &b.headers[i]
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(controlSize)
		h.Flags = 0
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.headers[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// packets returns the first n datagrams, and, where the kernel said so, how
// many it has dropped on this socket so far. now is the receive time of those
// for which the kernel gave none.
func (b *batch) packets(n int, now int64) (packets []udp.Packet, lost uint32, counted bool) {
	for i := range n {
		h := &b.headers[i]
		p := &b.out[i]
		start := i * stride
		p.Payload = b.payloads[start : start+int(h.n) : start+int(h.n)]
		p.Source = source(&b.names[i])
		p.Port = b.port
		p.Truncated = h.Flags&unix.MSG_TRUNC != 0
		p.ReceivedAt = now
		control := b.controls[i][:h.Controllen]
		for len(control) > unix.SizeofCmsghdr {
			c := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
			if size := int(c.Len); size < unix.SizeofCmsghdr || size > len(control) {
				break
			}
			data := unsafe.Pointer(&control[unix.SizeofCmsghdr])
			switch c.Type {
			case unix.SCM_TIMESTAMPNS:
				p.ReceivedAt = (*unix.Timespec)(data).Nano()
			case unix.SO_RXQ_OVFL:
				lost, counted = *(*uint32)(data), true
			}
			control = control[min(len(control), unix.CmsgSpace(int(c.Len)-unix.SizeofCmsghdr)):]
		}
	}
	return b.out[:n], lost, counted
}

// source returns the sender's address. The socket is IPv6 where the machine
// has it and IPv4 elsewhere.
func source(name *unix.RawSockaddrInet6) netip.AddrPort {
	// The port is in network byte order in both.
	p := (*[2]byte)(unsafe.Pointer(&name.Port))
	port := uint16(p[0])<<8 | uint16(p[1])
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), port)
}

// droppedBy asks how many datagrams the kernel has dropped on a socket.
func droppedBy(fd int) (uint32, bool) {
	info, ok := meminfo(fd)
	return info[dropsIndex], ok
}

// fillOf asks how full the buffer of a socket is, 0 to 1.
func fillOf(fd int) float64 {
	info, ok := meminfo(fd)
	if !ok || info[bufferIndex] == 0 {
		return 0
	}
	return float64(info[usedIndex]) / float64(info[bufferIndex])
}

// SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF and SK_MEMINFO_DROPS of linux/sock_diag.h.
const usedIndex, bufferIndex, dropsIndex = 0, 1, 8

func meminfo(fd int) (info [dropsIndex + 1]uint32, ok bool) {
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
	return info, errno == 0 && size == uint32(unsafe.Sizeof(info))
}
