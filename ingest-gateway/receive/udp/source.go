// SPDX-License-Identifier: Apache-2.0

// Package udp receives datagrams of telemetry.
package udp

import (
	"context"
	"net/netip"
)

// Packet is one datagram as a source hands it over.
type Packet struct {
	// Payload is the source's memory: it may be read until Sink.Packets returns, and not after.
	Payload []byte
	// Source is the sender's address. An IPv4 sender has an IPv4 address, never an IPv4-mapped one.
	Source netip.AddrPort
	// Port is the destination port.
	Port uint16
	// ReceivedAt in nanoseconds since the Unix epoch, of the gateway's clock: when the kernel or the interface took the
	// packet in if that is known, else when the source read it.
	ReceivedAt int64
	// Truncated: the datagram was larger than Payload; the rest is lost.
	Truncated bool
}

// Sink takes what a source received.
type Sink interface {
	// Packets takes a batch. It does not wait for anything but the processor: what it cannot keep, it drops and counts.
	Packets(batch []Packet)
	// Lost says that n datagrams for a port were dropped before the source could read them.
	Lost(port uint16, n uint64)
}

// PacketSource is a way to get datagrams from an interface or a socket.
//
// Batches: a source hands packets over in batches of up to some hundreds, as they come. A lone packet is a batch of its
// own; under load a packet may be held back for a millisecond, so that more come with it. Packets of one sender and port come in the order in which the source read them.
// The sink's methods are called by the source's goroutines: those for one port never at the same time, those for
// different ports possibly so.
//
// Memory: batch and payloads belong to the source, which uses them again after Packets returned. In steady state a
// source allocates nothing per packet.
//
// Loss: what the source knows to be lost before it read it (a full socket buffer or ring) is reported to Sink.Lost, for the port if that is
// known, else for port 0; never twice. A datagram larger than the source's buffers comes with Truncated set. A datagram that arrives while
// a port is being closed is read, or lost and reported.
type PacketSource interface {
	// Listen makes ports the set of ports that are received, from then on. Ports that stay are not disturbed: no packet
	// for them is lost. It returns an error for each port that could not be opened; the others are. Packets that were
	// read from a port that is closed are in the sink when Listen returns, and the sink gets nothing of the port after.
	Listen(ports []uint16) map[uint16]error
	// Run hands packets to sink until ctx ends; it is called once. When it returns, all that was read is in the sink,
	// the sink gets nothing more, and everything is released. Errors are those after which nothing can be received.
	Run(ctx context.Context, sink Sink) error
}
