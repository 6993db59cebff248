// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"container/list"
	"net/netip"
)

const (
	// network6 is how many bits of an IPv6 address distinguish clients: a client has all addresses
	// that share them.
	network6 = 64
	// site6 is the largest prefix that a provider gives to one customer. A site with connections
	// from more than maxNetworks networks counts as one address: a site has 65,536 networks.
	site6, maxNetworks = 48, 4
)

// member is what may give way to others: a connection, or a request.
type member struct {
	// network is what is counted as one address, and site what it is part of: for IPv4
	// the address itself.
	network, site netip.Prefix
	// number grows with each join of one crowd.
	number uint64
	in     *crowd
	at     *list.Element
	// owner is the *Slot or the *Entry.
	owner any
}

// newMember returns a member of no crowd.
func newMember(source netip.Addr, owner any) member {
	a := source.Unmap().WithZone("")
	network, site := a.BitLen(), a.BitLen()
	if a.Is6() {
		network, site = network6, site6
	}
	m := member{owner: owner}
	m.network, _ = a.Prefix(network) // of no address it is the zero Prefix
	m.site, _ = a.Prefix(site)
	return m
}

// crowd are members that may give way, by address. It is guarded by its owner's mutex.
type crowd struct {
	size int
	// last is the number of the newest member.
	last uint64
	// networks have their members, the oldest first.
	networks map[netip.Prefix]*list.List
	sites    map[netip.Prefix]*site
}

// site counts the members, and the networks that have some.
type site struct{ members, networks int }

func newCrowd() crowd {
	return crowd{networks: map[netip.Prefix]*list.List{}, sites: map[netip.Prefix]*site{}}
}

// join puts a member of no crowd into c, as the newest.
func (m *member) join(c *crowd) {
	of, in := c.networks[m.network], c.sites[m.site]
	if in == nil {
		in = &site{}
		c.sites[m.site] = in
	}
	if of == nil {
		of = list.New()
		c.networks[m.network] = of
		in.networks++
	}
	in.members++
	c.size++
	c.last++
	m.number, m.in, m.at = c.last, c, of.PushBack(m)
}

// leave takes a member out of its crowd.
func (m *member) leave() {
	c := m.in
	if c == nil {
		return
	}
	of, in := c.networks[m.network], c.sites[m.site]
	c.size--
	in.members--
	if of.Remove(m.at); of.Len() == 0 {
		delete(c.networks, m.network)
		in.networks--
	}
	if in.members == 0 {
		delete(c.sites, m.site)
	}
	m.in, m.at = nil, nil
}

// count returns how many members count as of m's address.
func (c *crowd) count(m *member) int {
	if in := c.sites[m.site]; in != nil && in.networks > maxNetworks {
		return in.members
	}
	if of := c.networks[m.network]; of != nil {
		return of.Len()
	}
	return 0
}

// heaviest returns the oldest member of the address that has the most, of several such the oldest
// of all, and how many the address has; nil if there is none.
func (c *crowd) heaviest() (oldest *member, count int) {
	for _, of := range c.networks {
		first := of.Front().Value.(*member)
		if n := c.count(first); n > count || n == count && first.number < oldest.number {
			oldest, count = first, n
		}
	}
	return oldest, count
}

// oldestOf returns the oldest member of m's address; nil if there is none.
func (c *crowd) oldestOf(m *member) (oldest *member) {
	if in := c.sites[m.site]; in == nil || in.networks <= maxNetworks {
		if of := c.networks[m.network]; of != nil {
			oldest = of.Front().Value.(*member)
		}
		return oldest
	}
	for _, of := range c.networks {
		first := of.Front().Value.(*member)
		if first.site == m.site && (oldest == nil || first.number < oldest.number) {
			oldest = first
		}
	}
	return oldest
}

// yieldingMember returns the member that gives way to a newcomer, of whose address held are there in
// all: the oldest of the address that has the most, unless the newcomer's would then have more.
// So of several addresses that ask each comes to as many as the others, and one has
// half at most beside another. It returns nil where none gives way.
func (c *crowd) yieldingMember(held int) *member {
	if oldest, count := c.heaviest(); count > held+1 {
		return oldest
	}
	return nil
}
