// SPDX-License-Identifier: Apache-2.0

// Package egress decides where our programs may connect to, for all that connects to a place that a manifest declares: copies to old
// servers, sources of space weather, partners of mirrors that are read over HTTP (connections of S3, rsync and ssh are not judged). The
// address is judged as the connection is made. It is the one that the name was resolved to for this very connection, so a name that leads
// elsewhere from one moment to the next (DNS rebinding) gains nothing.
package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// ErrCredentials: the address is one at which clouds tell a computer its credentials, or one of the link.
var ErrCredentials = errors.New("connections to link-local addresses, and to those where clouds serve credentials, are forbidden: declare another address")

// ErrNotPublic: the address is not of the internet at large, and was not declared.
var ErrNotPublic = errors.New("the address is not public")

// Rule says why no connection may be made to an address; nil where one may. Rules are given addresses without a zone, those of IPv4 as such.
type Rule func(netip.Addr) error

// Control judges each address that a net.Dialer connects to, as its Control.
func (r Rule) Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return r.Judge(to.Addr())
}

// Judge asks the rule about an address, in whatever form.
func (r Rule) Judge(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if confidential(addr) {
		return fmt.Errorf("%s: %w", addr, ErrCredentials)
	}
	if err := r(addr); err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	return nil
}

// Partner is the rule for a host that an administrator declares: it may be private.
func Partner() Rule { return func(netip.Addr) error { return nil } }

// Networks is the rule for what others than administrators declare: public addresses, and some networks.
func Networks(declared []netip.Prefix) Rule {
	return func(addr netip.Addr) error {
		if public(addr) || slices.ContainsFunc(declared, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return nil
		}
		return ErrNotPublic
	}
}

// Host is the rule for a declared host, by what its name promises: an address leads to itself, a name of this computer to this computer,
// a name of a Service also into the cluster, and any other name to public addresses only.
func Host(host string) Rule {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	may := public
	switch literal, err := netip.ParseAddr(host); {
	case err == nil:
		may = func(a netip.Addr) bool { return a == literal.Unmap().WithZone("") }
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		may = netip.Addr.IsLoopback
	case strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local"):
		may = netip.Addr.IsGlobalUnicast
	}
	return func(a netip.Addr) error {
		if may(a) {
			return nil
		}
		return ErrNotPublic
	}
}
