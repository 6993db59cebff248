// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"math/bits"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// message is a telemetry message that is being filled or on its way.
type message struct {
	flow *flow
	// payload is as wire.AppendTelemetryHeader and AppendDatagram made it, in a buffer of sizeOf(class) bytes.
	payload []byte
	class   int
	// first is the receive time of the first datagram, in nanoseconds since the Unix epoch.
	first            int64
	datagrams, bytes int
	// closes is when the message must be closed at the latest.
	closes time.Time
}

// Buffers come in classes, each four times as large as the one before: a magnetometer that sends a line a second must
// not hold a quarter of a megabyte.
const (
	leastBuffer = 1 << 10
	classes     = 5 // the last is wire.MaxTelemetrySize
	// overhead is about what a message takes besides its buffer, headers and all, while it waits for JetStream.
	overhead = 2 << 10
)

var buffers [classes]sync.Pool

func sizeOf(class int) int { return leastBuffer << (2 * class) }

// classFor returns the least class whose buffers hold size bytes; classes if there is none.
func classFor(size int) int {
	if size <= leastBuffer {
		return 0
	}
	return (bits.Len(uint((size-1)/leastBuffer)) + 1) / 2
}

func costOf(class int) int64 { return int64(sizeOf(class) + overhead) }

// newMessage begins a message in a buffer that was accounted for.
func newMessage(f *flow, class int, first int64, closes time.Time) *message {
	m, _ := buffers[class].Get().(*message)
	if m == nil {
		m = &message{class: class, payload: make([]byte, 0, sizeOf(class))}
	}
	m.flow, m.first, m.closes = f, first, closes
	m.datagrams, m.bytes = 0, 0
	m.payload = append(m.payload[:0], f.header...)
	return m
}

// grow moves the message into a buffer of a larger class, which was accounted for.
func (m *message) grow(class int) {
	larger := newMessage(m.flow, class, m.first, m.closes)
	larger.payload = append(larger.payload[:0], m.payload...)
	m.payload, larger.payload = larger.payload, m.payload
	m.class, larger.class = class, m.class
	larger.recycle()
}

// recycle gives the buffer back.
func (m *message) recycle() {
	m.flow = nil
	buffers[m.class].Put(m)
}

// space returns how many bytes the buffer still holds.
func (m *message) space() int { return cap(m.payload) - len(m.payload) }

// needs is what a datagram takes in a message at most.
func needs(payload []byte) int { return len(payload) + wire.MaxDatagramOverhead }
