// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Message is one message of a stream, or a part of one. It is shared by all who follow the
// stream, and must not be changed. Data that is made of it for one of them is kept for the
// others.
type Message struct {
	// Sequence in the stream.
	Sequence uint64
	// At is when the stream took it, by the server's clock.
	At      time.Time
	Subject string
	Header  nats.Header
	Data    []byte

	// Kind is RecordNotice or RecordTelemetry; 0 for what is neither.
	Kind wire.RecordKind
	// Site, Instrument, and of telemetry Channel, that it is of. A leaf's Instrument
	// may bear the name of one of ours.
	Site, Instrument, Channel string
	// Backfill: it is a notice of an object that came late.
	Backfill bool
	// Leaf is what a Feed lists that carries the Site as a leaf: wire.LeafInstruments.
	Leaf string
	// Part: it holds one datagram of several that came together.
	Part bool
	// Last is the index in the stream's message of the last datagram that it holds: 0
	// of notices.
	Last uint32

	ring *Ring // that holds it, if any

	mu        sync.Mutex
	text      []byte
	when      time.Time
	datagrams []wire.Datagram
	newest    int
	split     bool
	parts     map[int]*Message
	// charged is what is kept beside the message, in bytes. The ring's lock guards it.
	charged int
}

func newMessage(from stream.Message) *Message {
	m := &Message{Sequence: from.Sequence, At: from.At, Subject: from.Subject, Header: from.Header, Data: from.Data}
	if site, instrument, channel, err := wire.ParseObservationSubject(m.Subject); err == nil {
		m.Kind, m.Site, m.Instrument, m.Channel = wire.RecordTelemetry, site, instrument, channel
		m.Last = uint32(max(1, m.count()) - 1)
	} else if site, instrument, backfill, err := wire.ParseNoticeSubject(m.Subject); err == nil {
		m.Kind, m.Site, m.Instrument, m.Backfill = wire.RecordNotice, site, instrument, backfill
	}
	m.Leaf = wire.LeafInstruments(m.Site)
	return m
}

// count is the number of datagrams that the header of a telemetry message states, or, without a
// header, the number that it holds.
func (m *Message) count() int {
	if n, err := strconv.Atoi(m.Header.Get(wire.HeaderDatagrams)); err == nil {
		return n
	}
	return len(m.Datagrams())
}

// size is about what a message takes in memory, in bytes.
func (m *Message) size() int {
	n := len(m.Subject) + len(m.Data) + messageOverhead
	for name, values := range m.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

const (
	// messageOverhead is what a message and its headers take beside their bytes.
	messageOverhead = 768
	// datagramOverhead is what a datagram takes once a message was split into them.
	datagramOverhead = 96
)

// Text returns the message as a member of a wire.FeedMessage.
func (m *Message) Text() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text == nil {
		m.text = wire.AppendFeedMember(make([]byte, 0, len(m.Data)*3/2+128), m.Kind, m.Data)
		m.ring.charge(m, cap(m.text))
	}
	return m.text
}

// Datagrams returns the datagrams of a telemetry message. If one of them cannot be read, it
// returns those before it.
func (m *Message) Datagrams() []wire.Datagram {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.split {
		m.split = true
		for d, err := range wire.Datagrams(m.Data) {
			if err != nil {
				break
			}
			if len(m.datagrams) > 0 && !d.ReceivedAt.Before(m.datagrams[m.newest].ReceivedAt) {
				m.newest = len(m.datagrams)
			}
			m.datagrams = append(m.datagrams, d)
		}
		m.ring.charge(m, len(m.datagrams)*datagramOverhead)
	}
	return m.datagrams
}

// Newest returns the index of the datagram that was received last, and false if there is none.
func (m *Message) Newest() (index int, ok bool) {
	all := m.Datagrams()
	return m.newest, len(all) > 0
}

// Time of a message: when it, or the first of its datagrams, was received, by its
// header; when the stream took it where that does not say.
func (m *Message) Time() time.Time {
	if at, err := time.Parse(time.RFC3339Nano, m.Header.Get(wire.HeaderTime)); err == nil {
		return at
	}
	return m.At
}

// When is the time by which a notice is newer than another, see wire.Record; its Time if the notice
// cannot be parsed.
func (m *Message) When() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.when.IsZero() {
		m.when = m.Time()
		if n, err := wire.Decode[wire.Notice](m.Data); err == nil {
			m.when = n.When()
		}
	}
	return m.when
}

// Datagram returns one datagram as a message that does not keep the others in
// memory.
func (m *Message) Datagram(index int) *Message {
	all := m.Datagrams()
	if len(all) == 1 {
		return m
	}
	d := all[index]
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[index]
	if p == nil {
		p = m.with(d, uint32(index))
		if m.parts == nil {
			m.parts = map[int]*Message{}
		}
		m.parts[index] = p
		m.ring.charge(m, p.size())
	}
	return p
}

func (m *Message) with(d wire.Datagram, index uint32) *Message {
	data := wire.AppendTelemetryHeader(make([]byte, 0, len(d.Payload)+2*wire.MaxDatagramOverhead), m.Instrument, m.Channel)
	return &Message{
		Sequence: m.Sequence, At: m.At, Subject: m.Subject, Header: m.Header, Kind: m.Kind, Site: m.Site, Leaf: m.Leaf, Instrument: m.Instrument, Channel: m.Channel,
		Data: wire.AppendDatagram(data, d), Part: true, Last: index,
	}
}

// After returns what a message holds behind the datagram of an index; nil where
// that is nothing.
func (m *Message) After(index uint32) *Message {
	if m.Kind != wire.RecordTelemetry || index >= m.Last {
		return nil
	}
	all := m.Datagrams()
	rest := &Message{
		Sequence: m.Sequence, At: m.At, Subject: m.Subject, Header: m.Header, Kind: m.Kind, Site: m.Site, Leaf: m.Leaf, Instrument: m.Instrument, Channel: m.Channel,
		Data: wire.AppendTelemetryHeader(nil, m.Instrument, m.Channel), Last: m.Last,
	}
	for _, d := range all[min(len(all), int(index)+1):] {
		rest.Data = wire.AppendDatagram(rest.Data, d)
	}
	return rest
}
