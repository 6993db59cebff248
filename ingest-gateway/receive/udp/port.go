// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/internal/wire"
)

// port sorts the datagrams of one port into messages.
type port struct {
	r      *Receiver
	number uint16

	mu sync.Mutex
	// last is the greatest receive time so far: a clock that steps back moves none back.
	last int64
	// snapshot is what senders were made from; nil before the first packet.
	snapshot *intake.Snapshot
	senders  map[netip.Addr]*flow
	flows    map[flowKey]*flow
	// open are the flows with an open message.
	open []*flow
}

// maxSenders bounds how many identified senders a port remembers. Beyond, it forgets all and asks
// again.
const maxSenders = 4096

// flowKey names a flow: an instrument's channel at one of its listeners, or (with a cause) what is dropped.
type flowKey struct {
	instrument, listener, channel string
	dropped                       wire.Cause
	// near is the instrument that a dropped sender nearly was.
	near string
}

// flow is what comes from one instrument on one channel of a port.
type flow struct {
	flowKey
	// header begins each message.
	header []byte
	// dayEnd is when the UTC day of counter ends, in nanoseconds since the Unix epoch.
	dayEnd  int64
	counter ledger.DatagramCounter
	// count of datagrams that were read since the start.
	count   uint64
	message *message // nil while none is open
	// mayGather: its messages may wait for those of others.
	mayGather bool
	// limit of the instrument; nil for none.
	limit *intake.Limit
	// class of the buffer that the last message needed.
	class int

	received, receivedBytes prometheus.Counter
	drops                   map[wire.Cause]prometheus.Counter
}

// Packets implements Sink.
func (r *Receiver) Packets(batch []Packet) {
	now := time.Now()
	for len(batch) > 0 {
		number := batch[0].Port
		n := 1
		for n < len(batch) && batch[n].Port == number {
			n++
		}
		r.port(number).take(batch[:n], now)
		batch = batch[n:]
	}
}

// port returns what sorts a port's datagrams.
func (r *Receiver) port(number uint16) *port {
	r.mu.RLock()
	p := r.ports[number]
	r.mu.RUnlock()
	if p != nil {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p = r.ports[number]; p == nil {
		p = &port{r: r, number: number, flows: map[flowKey]*flow{}}
		r.ports[number] = p
	}
	return p
}

// take sorts a batch. Datagrams of one flow that follow each other are counted together, before anything becomes of them.
func (p *port) take(batch []Packet, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if current := p.r.cfg.Registry.Current(); current != p.snapshot {
		p.snapshot, p.senders = current, map[netip.Addr]*flow{}
	}
	for len(batch) > 0 {
		f, n, size := p.run(batch)
		f.read(n, size, now)
		p.r.packets.Add(uint64(n))
		p.r.bytes.Add(uint64(size))
		for i := range n {
			p.put(f, &batch[i], now)
		}
		batch = batch[n:]
	}
}

// run returns the flow of the first datagram, and how many from it on are of the same flow and day. It sets their receive
// times right.
func (p *port) run(batch []Packet) (f *flow, n, size int) {
	var from netip.Addr
	for i := range batch {
		packet := &batch[i]
		if p.last-packet.ReceivedAt > int64(maxStepBack) {
			p.setBack(packet.ReceivedAt)
		}
		p.last = max(p.last, packet.ReceivedAt)
		packet.ReceivedAt = p.last
		if addr := packet.Source.Addr(); i == 0 {
			f, from = p.sender(addr), addr
			if packet.ReceivedAt >= f.dayEnd {
				p.turnDay(f, packet.ReceivedAt)
			}
		} else if packet.ReceivedAt >= f.dayEnd || (addr != from && p.sender(addr) != f) {
			return f, i, size
		}
		size += len(packet.Payload)
	}
	return f, len(batch), size
}

// maxStepBack is how far receive times may go back while the last ones are still believed: packets
// of several CPUs come a little out of order, and clocks are kept right.
const maxStepBack = time.Minute

// setBack follows a clock that had been ahead and was set right: else all later datagrams would
// bear one instant until it is reached again. Each flow looks again which day it is.
func (p *port) setBack(to int64) {
	p.r.log.Error("the clock was set back: datagrams that were received before seem to be from the future",
		"port", p.number, "last", time.Unix(0, p.last).UTC(), "now", time.Unix(0, to).UTC())
	p.last = to
	for _, f := range p.flows {
		f.dayEnd = 0
	}
}

// read counts datagrams of the flow's day.
func (f *flow) read(n, size int, now time.Time) {
	f.count += uint64(n)
	f.counter.Read(n, now)
	f.received.Add(float64(n))
	f.receivedBytes.Add(float64(size))
}

// turnDay closes the message of the day before, and counts in the day that holds at.
func (p *port) turnDay(f *flow, at int64) {
	if f.message != nil {
		p.close(f)
	}
	t := time.Unix(0, at).UTC()
	const day = 24 * time.Hour
	f.dayEnd = t.Truncate(day).Add(day).UnixNano() // Truncate counts from a midnight
	f.counter = p.r.cfg.Ledger.Datagrams(f.instrument, f.listener, t)
}

// sender returns the flow of an address.
func (p *port) sender(addr netip.Addr) *flow {
	if f := p.senders[addr]; f != nil {
		return f
	}
	listener, refusal := p.snapshot.Identify(intake.Claim{Protocol: wire.ProtocolUDP, Port: p.number, Addr: addr})
	key := flowKey{instrument: wire.UnknownInstrument, dropped: refusal.Cause, near: refusal.Instrument}
	switch {
	case listener != nil:
		key = flowKey{instrument: listener.Instrument.Name, listener: listener.Name, channel: listener.Channel}
	case refusal.Cause == wire.CauseRetired:
		key.instrument = refusal.Name()
	}
	f := p.flows[key]
	if f == nil {
		f = p.newFlow(key)
		p.flows[key] = f
	}
	if listener != nil {
		f.limit, f.mayGather = listener.Instrument.Limit, mayGather(listener.Instrument.Acknowledge)
	}
	if len(p.senders) >= maxSenders {
		clear(p.senders)
	}
	p.senders[addr] = f
	return f
}

func (p *port) newFlow(key flowKey) *flow {
	f := &flow{flowKey: key, drops: map[wire.Cause]prometheus.Counter{}}
	f.header = wire.AppendTelemetryHeader(nil, key.instrument, key.channel)
	f.received, f.receivedBytes = p.r.metrics.received(key.instrument)
	return f
}

// put adds a datagram to its flow's message, or drops it.
func (p *port) put(f *flow, packet *Packet, now time.Time) {
	switch {
	case f.dropped != "":
		p.refuse(f, packet)
		return
	case !f.limit.TakeDatagram(len(packet.Payload), now):
		p.drop(f, wire.CauseRateLimited)
		return
	case packet.Truncated:
		p.drop(f, wire.CauseTruncated)
		return
	}
	m := p.space(f, needs(packet.Payload), packet.ReceivedAt, now)
	if m == nil {
		p.drop(f, p.r.outbox.cause())
		return
	}
	m.payload = wire.AppendDatagram(m.payload, wire.Datagram{
		ReceivedAt: time.Unix(0, packet.ReceivedAt), Source: packet.Source, DestinationPort: p.number, Payload: packet.Payload,
	})
	m.datagrams++
	m.bytes += len(packet.Payload)
}

// refuse drops a datagram of a sender that may not send, or has it quarantined.
func (p *port) refuse(f *flow, packet *Packet) {
	cause := f.dropped
	if p.r.cfg.UnknownSenders != nil && cause == wire.CauseUnknownSource && !packet.Truncated {
		cause = p.r.cfg.UnknownSenders.Datagram(wire.Datagram{
			ReceivedAt: time.Unix(0, packet.ReceivedAt), Source: packet.Source, DestinationPort: p.number, Payload: packet.Payload,
		})
	}
	if cause != "" {
		p.drop(f, cause)
	}
	p.r.cfg.Registry.Refusals.Note(intake.Refusal{Cause: f.dropped, Instrument: f.near}, wire.ProtocolUDP, p.number, packet.Source.Addr(), 1)
	p.r.logUnknownSender(f, packet)
}

// space returns the flow's message with space for n more bytes, or nil where memory is short or nothing
// is published any more.
func (p *port) space(f *flow, n int, first int64, now time.Time) *message {
	if m := f.message; m != nil {
		if m.space() >= n {
			return m
		}
		if class := classFor(len(m.payload) + n); class < classes && p.mayGrow(m, class, now) && p.r.memory.take(costOf(class)-costOf(m.class)) {
			m.grow(class)
			return m
		}
		p.close(f)
	}
	if p.r.outbox.closed.Load() {
		return nil
	}
	class := max(f.class, classFor(len(f.header)+n))
	if !p.r.memory.take(costOf(class)) {
		if class = classFor(len(f.header) + n); !p.r.memory.take(costOf(class)) {
			return nil
		}
	}
	f.message = newMessage(f, class, first, p.r.closes(f, now))
	p.open = append(p.open, f)
	p.r.hasOpen(f.message.closes)
	return f.message
}

// mayGrow says whether a message may take a larger buffer: one that waits for others takes no more than half of the memory with all that is
// there.
func (p *port) mayGrow(m *message, class int, now time.Time) bool {
	waits := m.closes.Sub(now) > wire.TelemetryMaxAge
	return !waits || p.r.memory.used.Load()+costOf(class)-costOf(m.class) <= p.r.memory.size/2
}

// drop counts a datagram that was read and is not kept.
func (p *port) drop(f *flow, cause wire.Cause) {
	f.counter.Dropped(cause, 1)
	c := f.drops[cause]
	if c == nil {
		c = p.r.metrics.dropped(f.instrument, cause)
		f.drops[cause] = c
	}
	c.Inc()
}

// close sends the flow's message on its way.
func (p *port) close(f *flow) {
	m := f.message
	f.message = nil
	f.class = classFor(len(m.payload))
	for i, open := range p.open {
		if open == f {
			p.open = append(p.open[:i], p.open[i+1:]...)
			break
		}
	}
	if !p.r.outbox.push(m) {
		p.r.dropMessage(m, p.r.outbox.cause())
		p.r.release(m)
	}
}

// closeDue closes messages that must be closed by an instant, and returns when the first that is left must be; zero if there is none.
func (p *port) closeDue(by time.Time) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(p.open); {
		f := p.open[i]
		if closes := f.message.closes; closes.After(by) {
			next = earlier(next, closes)
			i++
			continue
		}
		p.close(f) // takes it out of open
	}
	return next
}

// Settled counts what became of datagrams that UnknownSenders took, of the day that holds at.
func (r *Receiver) Settled(at time.Time, cause wire.Cause, datagrams int) {
	r.cfg.Ledger.DatagramsDropped(wire.UnknownInstrument, at, cause, datagrams)
	r.metrics.dropped(wire.UnknownInstrument, cause).Add(float64(datagrams))
}

// Lost implements Sink: the kernel's drops are the instrument's where the port has only one.
func (r *Receiver) Lost(number uint16, n uint64) {
	name := wire.UnknownInstrument
	others := false
	for _, in := range r.cfg.Registry.Current().Instruments() {
		for _, w := range in.Listeners {
			if w.Protocol == wire.ProtocolUDP && w.Port == number && name != in.Name {
				others = name != wire.UnknownInstrument
				name = in.Name
			}
		}
	}
	if others {
		name = wire.UnknownInstrument
	}
	r.cfg.Ledger.DatagramsDropped(name, time.Now(), wire.CauseKernelBuffer, int(n))
	r.metrics.dropped(name, wire.CauseKernelBuffer).Add(float64(n))
	if r.strange.Allow() {
		r.log.Warn("the kernel dropped datagrams: its buffer was full, or the port was being closed", "instrument", name, "port", number, "datagrams", n)
	}
}

// logUnknownSender names the address of a datagram that was dropped for where it came from, at most some a second.
func (r *Receiver) logUnknownSender(f *flow, packet *Packet) {
	if !r.strange.Allow() {
		r.hushed.Add(1)
		return
	}
	r.log.Warn("datagram dropped", "cause", f.dropped, "instrument", f.instrument, "source", packet.Source.String(),
		"port", packet.Port, "bytes", len(packet.Payload), "notLoggedBefore", r.hushed.Swap(0))
}
