// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Snapshot is who may send, as of one moment. It never changes: any number of
// goroutines may ask it.
type Snapshot struct {
	// Revision of the last complete registry that the snapshot holds; 0 before the first.
	Revision int64
	// Problems are what keeps an instrument from being received, by instrument.
	Problems map[string]string

	// epoch of the bucket that the last complete registry came from.
	epoch time.Time
	// complete: the snapshot holds nothing but the registry of Revision.
	complete bool
	// entries of the whole registry, those of other pools included.
	entries     map[string]wire.InstrumentEntry
	instruments map[string]*Instrument
	// ways in force, in the order in which they were claimed.
	ways     []*Way
	tcp, udp map[uint16]*claims
	// http by port, and then by the instrument that a path names.
	http map[uint16]map[string]*claims
}

// claims are the ways on one port of one protocol, ordered for lookup. No
// address belongs to two instruments; of two ways of one instrument the longer
// prefix counts.
type claims struct {
	// bits are the lengths of the prefixes in use, longest first.
	bits4, bits6 []int
	byPrefix     map[netip.Prefix]*Way
	any          *Way
}

// Lookup returns the way in that addr uses on a port of TCP or UDP, or false for
// a stranger.
func (s *Snapshot) Lookup(protocol string, port uint16, addr netip.Addr) (*Way, bool) {
	ports := s.udp
	if protocol == wire.ProtocolTCP {
		ports = s.tcp
	}
	return ports[port].lookup(addr)
}

// LookupPath returns the way in over HTTP that addr uses on a port, where the
// path names an instrument. Without such a way, known says whether the
// instrument has one on that port for other addresses.
func (s *Snapshot) LookupPath(port uint16, instrument string, addr netip.Addr) (way *Way, known bool) {
	c := s.http[port][instrument]
	way, _ = c.lookup(addr)
	return way, c != nil
}

// lookup returns the way that addr uses. It takes no lock and allocates nothing.
func (c *claims) lookup(addr netip.Addr) (*Way, bool) {
	if c == nil {
		return nil, false
	}
	addr = addr.Unmap().WithZone("")
	bits := c.bits6
	if addr.Is4() {
		bits = c.bits4
	}
	for _, b := range bits {
		prefix, err := addr.Prefix(b)
		if err != nil {
			continue
		}
		if way := c.byPrefix[prefix]; way != nil {
			return way, true
		}
	}
	return c.any, c.any != nil
}

// Ports returns the ports of a protocol on which an instrument sends, ascending.
func (s *Snapshot) Ports(protocol string) []uint16 {
	switch protocol {
	case wire.ProtocolTCP:
		return slices.Sorted(maps.Keys(s.tcp))
	case wire.ProtocolHTTP:
		return slices.Sorted(maps.Keys(s.http))
	default:
		return slices.Sorted(maps.Keys(s.udp))
	}
}

// Instrument returns the instrument of that name, or nil.
func (s *Snapshot) Instrument(name string) *Instrument { return s.instruments[name] }

// Instruments returns the instruments by name. Do not change the map.
func (s *Snapshot) Instruments() map[string]*Instrument { return s.instruments }

// Entry returns the registry's entry of an instrument of any pool.
func (s *Snapshot) Entry(instrument string) (wire.InstrumentEntry, bool) {
	e, ok := s.entries[instrument]
	return e, ok
}

// claim adds a way, which overlaps none of another instrument. What was claimed
// before stays.
func (s *Snapshot) claim(w *Way) {
	if slices.Contains(s.ways, w) {
		return
	}
	s.ways = append(s.ways, w)
	switch w.Protocol {
	case wire.ProtocolHTTP:
		if s.http[w.Port] == nil {
			s.http[w.Port] = map[string]*claims{}
		}
		addTo(s.http[w.Port], w.Instrument.Name, w)
	case wire.ProtocolTCP:
		addTo(s.tcp, w.Port, w)
	default:
		addTo(s.udp, w.Port, w)
	}
}

func addTo[K comparable](m map[K]*claims, key K, w *Way) {
	if m[key] == nil {
		m[key] = &claims{byPrefix: map[netip.Prefix]*Way{}}
	}
	m[key].add(w)
}

func (c *claims) add(w *Way) {
	if len(w.Sources) == 0 && c.any == nil {
		c.any = w
	}
	for _, p := range w.Sources {
		if c.byPrefix[p] == nil {
			c.byPrefix[p] = w
		}
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

// conflict returns a way that keeps w out, or nil: one of another instrument that
// has an address of w, and on a port of HTTP one of raw TCP, or the reverse.
func (s *Snapshot) conflict(w *Way) *Way {
	switch w.Protocol {
	case wire.ProtocolHTTP: // paths tell instruments apart
		if c := s.tcp[w.Port]; c != nil {
			return c.first()
		}
		return nil
	case wire.ProtocolTCP:
		for _, name := range slices.Sorted(maps.Keys(s.http[w.Port])) {
			return s.http[w.Port][name].first()
		}
		return s.tcp[w.Port].conflict(w)
	default:
		return s.udp[w.Port].conflict(w)
	}
}

func (c *claims) first() *Way {
	if c.any != nil {
		return c.any
	}
	return c.contained(netip.Prefix{}, func(*Way) bool { return true })
}

func (c *claims) conflict(w *Way) *Way {
	if c == nil {
		return nil
	}
	other := func(o *Way) bool { return o != nil && o.Instrument.Name != w.Instrument.Name }
	if other(c.any) {
		return c.any
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
			if wider, err := p.Addr().Prefix(b); b <= p.Bits() && err == nil && other(c.byPrefix[wider]) {
				return c.byPrefix[wider]
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

// contained returns a way, of those that match accepts, with a prefix inside p
// (anywhere, for the zero prefix); the least prefix decides, so that the answer
// is always the same.
func (c *claims) contained(p netip.Prefix, match func(*Way) bool) *Way {
	var found *Way
	var least netip.Prefix
	for q, o := range c.byPrefix {
		if (!p.IsValid() || p.Overlaps(q)) && match(o) && (found == nil || q.Compare(least) < 0) {
			found, least = o, q
		}
	}
	return found
}
