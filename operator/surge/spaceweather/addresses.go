// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
)

var (
	errRedirected = errors.New("redirects")
	errAddress    = errors.New("the name leads to an address that only this cluster or computer can reach, and a URL of the public's must not: " +
		"declare the address itself, or a Service's name that ends in .svc, if that is meant")
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
		if addr := to.Addr().Unmap().WithZone(""); !may(addr) {
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

var (
	// shared is the range of RFC 6598, which providers and clusters use within.
	shared = netip.MustParsePrefix("100.64.0.0/10")
	// nat64 is the prefix of RFC 6052: behind it are addresses of IPv4.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// public says whether an address is of the internet at large.
func public(a netip.Addr) bool {
	if nat64.Contains(a) {
		bytes := a.As16()
		a, _ = netip.AddrFromSlice(bytes[12:])
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
}
