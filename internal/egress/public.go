// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/netip"
	"slices"
)

// metadata are where clouds tell a computer its credentials, beside addresses of the link such as 169.254.169.254: AWS's of IPv6, and those
// of Alibaba, Azure and Oracle.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

var (
	// nat64 is the prefix of RFC 6052, and sixToFour the prefix of RFC 3056: they hold addresses of IPv4.
	nat64, sixToFour = netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16")
	// global6 is what is assigned of IPv6 to the internet at large. Other ranges hold addresses of IPv4, too.
	global6 = netip.MustParsePrefix("2000::/3")
	// special are ranges that are not of the internet at large, and that net/netip takes for global ones (IANA's registries of special-purpose addresses): "this
	// network", what providers and clusters share (RFC 6598), assignments of protocols, benchmarks, documentation, what is reserved; of IPv6
	// the tunnels that hold addresses of IPv4 (Teredo, 6to4), and documentation.
	special = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/32", "2002::/16", "2001:db8::/32", "3fff::/20")
)

func prefixes(all ...string) (of []netip.Prefix) {
	for _, text := range all {
		of = append(of, netip.MustParsePrefix(text))
	}
	return of
}

// confidential says whether an address, or the IPv4 address inside it, may serve a computer its own credentials: no declaration may name
// it.
func confidential(a netip.Addr) bool {
	bytes := a.As16()
	switch {
	case nat64.Contains(a):
		a, _ = netip.AddrFromSlice(bytes[12:])
	case sixToFour.Contains(a):
		a, _ = netip.AddrFromSlice(bytes[2:6])
	}
	return a.IsLinkLocalUnicast() || slices.Contains(metadata, a)
}

// public says whether an address is of the internet at large.
func public(a netip.Addr) bool {
	if nat64.Contains(a) {
		bytes := a.As16()
		a, _ = netip.AddrFromSlice(bytes[12:])
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && (a.Is4() || global6.Contains(a)) &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
