// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

var (
	errRedirected = errors.New("redirects")
	errAddress    = errors.New("the name leads to an address that only this cluster or computer can reach, and a URL of the public's must not: " +
		"declare the address itself, or a Service's name that ends in .svc, if that is meant")
	errMetadata = errors.New("no source is read at addresses of the link, nor where clouds tell a computer its credentials: declare another source")
)

// redirected lets a server send us on to another path of its own, and from http to https. What is declared is one server.
func (f *fetcher) redirected(q *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w more than %d times: declare the URL that it leads to", errRedirected, maxRedirects)
	}
	if q.URL.Host != f.url.Host || q.URL.Scheme != f.url.Scheme && q.URL.Scheme != "https" {
		return fmt.Errorf("%w to %s://%s: declare that URL, if it is meant", errRedirected, q.URL.Scheme, q.URL.Host)
	}
	return nil
}

// judged returns what judges each address that a connection is made to. The address is the one that the name was resolved to for this
// very connection, so a name that leads elsewhere from one moment to the next (DNS rebinding) gains nothing.
func judged(host string) func(network, address string, _ syscall.RawConn) error {
	may := reach(host)
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		addr := to.Addr().Unmap().WithZone("")
		switch {
		case confidential(addr):
			return fmt.Errorf("%s leads to %s: %w", host, addr, errMetadata)
		case !may(addr):
			return fmt.Errorf("%s leads to %s: %w", host, addr, errAddress)
		}
		return nil
	}
}

// reach says to which addresses a declared host may lead: an address to itself, a name of this computer to this computer, a name of a
// Service also into the cluster, any other to the public's addresses only.
func reach(host string) func(netip.Addr) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if literal, err := netip.ParseAddr(host); err == nil {
		literal = literal.Unmap().WithZone("")
		return func(a netip.Addr) bool { return a == literal }
	}
	switch {
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		return netip.Addr.IsLoopback
	case strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local"):
		return netip.Addr.IsGlobalUnicast
	}
	return public
}

// confidential says whether a computer may be told its own credentials at an address: no host may lead there.
func confidential(a netip.Addr) bool { return a.IsLinkLocalUnicast() || slices.Contains(metadata, a) }

// metadata are where clouds tell a computer its credentials, beside addresses of the link such as 169.254.169.254: AWS's of IPv6, and those
// of Alibaba, Azure and Oracle. Who may declare a Site is not told them by way of an operator.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

var (
	// nat64 is the prefix of RFC 6052: behind it are addresses of IPv4.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
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

// public says whether an address is of the internet at large.
func public(a netip.Addr) bool {
	if nat64.Contains(a) {
		bytes := a.As16()
		a, _ = netip.AddrFromSlice(bytes[12:])
		return !confidential(a) && public(a)
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && (a.Is4() || global6.Contains(a)) &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
