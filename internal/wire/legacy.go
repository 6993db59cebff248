// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const legacyPrefix = "legacy/"

// Legacy names what came from one address to one port of the gateways in one
// UTC day, as an RTEMP keeps it: one run of bytes, to which later data is appended.
type Legacy struct {
	// Address of the sender; IPv4 addresses are not mapped into IPv6.
	Address netip.Addr
	Port    uint16
	Day     Day
}

// Path is legacy/<address>/<port>/<yyyy>/<mm>/<dd>.
func (l Legacy) Path() string {
	return legacyPrefix + l.Address.String() + "/" + strconv.Itoa(int(l.Port)) + "/" + l.Day.path()
}

// IsLegacyPath says whether a path means a Legacy, or wants to.
func IsLegacyPath(path string) bool { return strings.HasPrefix(path, legacyPrefix) }

// ParseLegacyPath reads what Path wrote, and nothing else. Errors: ErrMalformed.
func ParseLegacyPath(path string) (Legacy, error) {
	p := strings.Split(path, "/")
	if len(p) != 6 || !IsLegacyPath(path) {
		return Legacy{}, fmt.Errorf("path %q is not legacy/<address>/<port>/<yyyy>/<mm>/<dd>: %w", path, ErrMalformed)
	}
	address, err := netip.ParseAddr(p[1])
	if err != nil {
		return Legacy{}, fmt.Errorf("path %q: %w: %v", path, ErrMalformed, err)
	}
	port, err := strconv.ParseUint(p[2], 10, 16)
	if err != nil || port == 0 {
		return Legacy{}, fmt.Errorf("path %q: port %q is not 1 to 65535: %w", path, p[2], ErrMalformed)
	}
	day, err := ParseDay(strings.Join(p[3:], "-"))
	if err != nil {
		return Legacy{}, fmt.Errorf("path %q: %w", path, err)
	}
	l := Legacy{address.Unmap(), uint16(port), day}
	if l.Path() != path {
		return Legacy{}, fmt.Errorf("path %q must be written %q: %w", path, l.Path(), ErrMalformed)
	}
	return l, nil
}

// LegacyOf returns the Legacy that an object belongs to, and false for one that
// came by no connection that is known.
func LegacyOf(r Record) (Legacy, bool) {
	source, err := netip.ParseAddrPort(r.Source)
	if err != nil || r.Port == 0 {
		return Legacy{}, false
	}
	return Legacy{source.Addr().Unmap(), r.Port, DayOf(r.ReceivedAt)}, true
}
