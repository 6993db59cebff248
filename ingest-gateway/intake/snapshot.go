// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// Snapshot is the set of permitted senders, as of one moment. It never changes: any number of
// goroutines may ask it.
type Snapshot struct {
	// Revision of the last complete registry that the snapshot holds; 0 before the first.
	Revision int64
	// Problems are what keeps an instrument from being received, by instrument.
	Problems map[string]string

	// registry is what the snapshot follows from.
	registry *registry.Snapshot
	// known are the instruments of the whole registry, those of other pools and Sites included.
	known       map[string]*Instrument
	instruments map[string]*Instrument
	// listeners in force, in the order in which they were claimed.
	listeners []*Listener
	claims    map[place]*claims
	// streams is the first listener on each port of TCP or HTTP: the others are alike.
	streams map[uint16]*Listener
}

// place is where listeners are distinguished by their senders' addresses: a port of a protocol and,
// over HTTP, the instrument that a path names.
type place struct {
	protocol   string
	port       uint16
	instrument string // of HTTP
}

func (w *Listener) place() place {
	p := place{protocol: w.Protocol, port: w.Port}
	if w.Protocol == wire.ProtocolHTTP {
		p.instrument = w.Instrument.Name
	}
	return p
}

// claims are the listeners at one place, ordered for lookup. No address belongs to two instruments
// unless what their senders show distinguishes them; of two listeners of one instrument the longer
// prefix counts.
type claims struct {
	// bits are the lengths of the prefixes in use, longest first.
	bits4, bits6 []int
	byPrefix     map[netip.Prefix][]*Listener
	any          []*Listener
}

// Lookup returns the first listener for an address on a port of TCP or UDP,
// whatever else it asks of its sender, or false for an unknown sender. It takes no lock
// and allocates nothing.
func (s *Snapshot) Lookup(protocol string, port uint16, addr netip.Addr) (*Listener, bool) {
	for listener := range s.claims[place{protocol: protocol, port: port}].candidates(addr) {
		return listener, true
	}
	return nil, false
}

// candidates are the listeners for an address, those with the longest prefix
// first, then in the order in which they were claimed.
func (c *claims) candidates(addr netip.Addr) iter.Seq[*Listener] {
	return func(yield func(*Listener) bool) {
		if c == nil {
			return
		}
		addr := addr.Unmap().WithZone("")
		bits := c.bits6
		if addr.Is4() {
			bits = c.bits4
		}
		for _, b := range bits {
			prefix, err := addr.Prefix(b)
			if err != nil {
				continue
			}
			for _, listener := range c.byPrefix[prefix] {
				if !yield(listener) {
					return
				}
			}
		}
		for _, listener := range c.any {
			if !yield(listener) {
				return
			}
		}
	}
}

// Ports returns the ports of a protocol on which an instrument sends, ascending.
func (s *Snapshot) Ports(protocol string) []uint16 {
	var ports []uint16
	for p := range s.claims {
		if p.protocol == protocol {
			ports = append(ports, p.port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Serves says whether an instrument sends by a protocol, TCP or HTTP, on a port.
func (s *Snapshot) Serves(protocol string, port uint16) bool {
	w := s.streams[port]
	return w != nil && w.Protocol == protocol
}

// Instrument returns the instrument of that name, or nil.
func (s *Snapshot) Instrument(name string) *Instrument { return s.instruments[name] }

// Instruments returns the instruments by name. Do not change the map.
func (s *Snapshot) Instruments() map[string]*Instrument { return s.instruments }

// Entry returns the registry's entry of an instrument of any pool.
func (s *Snapshot) Entry(instrument string) (wire.InstrumentEntry, bool) {
	if in := s.known[instrument]; in != nil {
		return in.entry, true
	}
	return wire.InstrumentEntry{}, false
}

// claim adds a listener, which conflicts with none of another instrument. Earlier claims stay.
func (s *Snapshot) claim(w *Listener) {
	if slices.Contains(s.listeners, w) {
		return
	}
	s.listeners = append(s.listeners, w)
	if w.Protocol != wire.ProtocolUDP && s.streams[w.Port] == nil {
		s.streams[w.Port] = w
	}
	c := s.claims[w.place()]
	if c == nil {
		c = &claims{byPrefix: map[netip.Prefix][]*Listener{}}
		s.claims[w.place()] = c
	}
	if len(w.Sources) == 0 {
		c.any = append(c.any, w)
	}
	for _, p := range w.Sources {
		c.byPrefix[p] = append(c.byPrefix[p], w)
		bits := &c.bits6
		if p.Addr().Is4() {
			bits = &c.bits4
		}
		if !slices.Contains(*bits, p.Bits()) {
			*bits = append(*bits, p.Bits())
			slices.SortFunc(*bits, func(a, b int) int { return b - a })
		}
	}
}

// conflict returns a listener that keeps w out, or nil: one of another instrument whose senders
// cannot be distinguished from those of w; on a port of HTTP one of raw TCP, or the reverse; and on
// a port of HTTP a plain one where w is over TLS, or the reverse.
func (s *Snapshot) conflict(w *Listener) *Listener {
	o := s.streams[w.Port]
	if o != nil && w.Protocol != wire.ProtocolUDP &&
		(o.Protocol != w.Protocol || o.encryptsOtherwise(w) && o.Instrument.Name != w.Instrument.Name) {
		return o
	}
	return s.claims[w.place()].conflict(w)
}

// encryptsOtherwise: what a request over HTTP names is known only once it is
// known whether it comes over TLS.
func (w *Listener) encryptsOtherwise(o *Listener) bool {
	return w.Protocol == wire.ProtocolHTTP && o.Protocol == w.Protocol && (w.TLS == "") != (o.TLS == "")
}

func (c *claims) conflict(w *Listener) *Listener {
	if c == nil {
		return nil
	}
	other := func(o *Listener) bool { return o.Instrument.Name != w.Instrument.Name && !o.apart(w) }
	if i := slices.IndexFunc(c.any, other); i >= 0 {
		return c.any[i]
	}
	if len(w.Sources) == 0 {
		return c.contained(netip.Prefix{}, other)
	}
	for _, p := range w.Sources {
		bits := c.bits6
		if p.Addr().Is4() {
			bits = c.bits4
		}
		for _, b := range bits { // the prefixes that hold p
			wider, err := p.Addr().Prefix(b)
			if b > p.Bits() || err != nil {
				continue
			}
			if i := slices.IndexFunc(c.byPrefix[wider], other); i >= 0 {
				return c.byPrefix[wider][i]
			}
		}
		if len(bits) > 0 && bits[0] > p.Bits() { // only then may p hold another
			if o := c.contained(p, other); o != nil {
				return o
			}
		}
	}
	return nil
}

// apart says whether the certificates of their senders distinguish two listeners.
func (w *Listener) apart(o *Listener) bool {
	return len(w.CertificateNames) > 0 && len(o.CertificateNames) > 0 &&
		!slices.ContainsFunc(w.CertificateNames, func(n string) bool { return slices.Contains(o.CertificateNames, n) })
}

// contained returns a listener, of those that match accepts, with a prefix inside p
// (anywhere, for the zero prefix); the least prefix decides, so that the answer
// is always the same.
func (c *claims) contained(p netip.Prefix, match func(*Listener) bool) *Listener {
	var found *Listener
	var least netip.Prefix
	for q, listeners := range c.byPrefix {
		if p.IsValid() && !p.Overlaps(q) {
			continue
		}
		if i := slices.IndexFunc(listeners, match); i >= 0 && (found == nil || q.Compare(least) < 0) {
			found, least = listeners[i], q
		}
	}
	return found
}
