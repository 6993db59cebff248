// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Class is what kind of client asks.
type Class int

// The classes. A Person looks at pages; a Robot is a program that fetches.
const (
	Person Class = iota
	Robot
)

// String is the class as metrics and reports spell it.
func (c Class) String() string {
	if c == Robot {
		return "Robot"
	}
	return "Person"
}

// robots are parts of the User-Agent of programs that call themselves browsers.
var robots = []string{"bot", "crawl", "spider", "slurp", "httrack", "scrapy", "archiver"}

// ClassOf returns a client's class by its User-Agent: only browsers, and clients that imitate them,
// begin with Mozilla.
func ClassOf(r *http.Request) Class {
	agent := r.UserAgent()
	if !strings.HasPrefix(agent, "Mozilla/") && !strings.HasPrefix(agent, "Opera/") {
		return Robot
	}
	agent = strings.ToLower(agent)
	for _, part := range robots {
		if strings.Contains(agent, part) {
			return Robot
		}
	}
	return Person
}

// Proxies are the networks of proxies whose statement of a client's address is trusted.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks, as CIDRs.
func ParseProxies(all []string) (Proxies, error) {
	var p Proxies
	for _, text := range all {
		network, err := netip.ParsePrefix(text)
		if address, alone := netip.ParseAddr(text); alone == nil {
			network, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		p = append(p, network.Masked())
	}
	return p, nil
}

// AddressOf returns a client's address: the address of the connection or, if a trusted proxy made
// the connection, the last one in X-Forwarded-For that no such proxy has. For an IPv6 address it
// returns the network of 64 bits, because a client has all of it. The zero Addr stands for an
// unknown address.
func (p Proxies) AddressOf(r *http.Request) netip.Addr {
	address := remoteOf(r.RemoteAddr)
	if p.trust(address) {
		address = p.forwarded(r.Header.Values("X-Forwarded-For"), address)
	}
	return network64(address)
}

// remoteOf is the address of address:port; the zero Addr if it cannot be parsed.
func remoteOf(text string) netip.Addr {
	remote, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}
	}
	return remote.Addr().Unmap()
}

// network64 is an address, or of one of IPv6 its network of 64 bits.
func network64(address netip.Addr) netip.Addr {
	if !address.Is6() {
		return address
	}
	network, err := address.WithZone("").Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return network.Addr()
}

// network48 is an address, or of one of IPv6 its network of 48 bits: a site has so many (RFC 6177), and a client with one has
// 65,536 networks of 64 bits.
func network48(address netip.Addr) netip.Addr {
	if !address.Is6() {
		return address
	}
	network, err := address.WithZone("").Prefix(48)
	if err != nil {
		return netip.Addr{}
	}
	return network.Addr()
}

// WideOf is what an address counts to beside itself: of one of IPv6 its network of 48 bits. Wider is false where it is the same.
func WideOf(address netip.Addr) (wide netip.Addr, wider bool) {
	wide = network48(address)
	return wide, address.Is6()
}

func (p Proxies) forwarded(lines []string, address netip.Addr) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		hops := strings.Split(lines[i], ",")
		for j := len(hops) - 1; j >= 0; j-- {
			hop, ok := parseHop(strings.TrimSpace(hops[j]))
			if !ok {
				return address
			}
			if address = hop.Unmap(); !p.trust(address) {
				return address
			}
		}
	}
	return address
}

// parseHop reads a member of X-Forwarded-For: an address, to which some proxies add the port.
func parseHop(text string) (netip.Addr, bool) {
	if hop, err := netip.ParseAddrPort(text); err == nil {
		return hop.Addr(), true
	}
	if inner, opened := strings.CutPrefix(text, "["); opened {
		text, _ = strings.CutSuffix(inner, "]")
	}
	hop, err := netip.ParseAddr(text)
	return hop, err == nil
}

func (p Proxies) trust(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// Trusted reports whether a request came by a proxy that is believed.
func (p Proxies) Trusted(r *http.Request) bool {
	return p.trust(remoteOf(r.RemoteAddr))
}
