// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// errNotAllowed: the address is one of a network to which copies may not go.
var errNotAllowed = errors.New("copies do not go to this network: an administrator names it in spec.archivist.forwardNetworks of the Site, or the Instrument names another server")

// shared is the range of RFC 6598, which providers and clusters use within.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// dialer connects to old servers. It judges the address that a name was resolved to, as
// the connection is made: who writes an Instrument must not reach what only the cluster,
// or the gateway's node, can, whatever a name is said to be at whichever time.
func (c *Config) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return c.mayGoTo(to.Addr())
	}}
}

// mayGoTo returns errNotAllowed where copies may not go to an address: one of a network
// that is not the public's, unless it is declared.
func (c *Config) mayGoTo(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if slices.ContainsFunc(c.Networks, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return nil
	}
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || shared.Contains(addr) {
		return fmt.Errorf("%s: %w", addr, errNotAllowed)
	}
	return nil
}
