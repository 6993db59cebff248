// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// MaxNodes is bounded by the addresses below; two cores carry three nodes well.
const MaxNodes = 9

// addresses derives every address of a cluster from one number: 10.<Base>.0.0/24 for the nodes, the /16 above it for
// pods (one /24 a node) and the next for Services.
type addresses struct{ Base int }

func (a addresses) api() string          { return fmt.Sprintf("10.%d.0.1", a.Base) }
func (a addresses) nodes() string        { return fmt.Sprintf("10.%d.0.0/24", a.Base) }
func (a addresses) node(n int) string    { return fmt.Sprintf("10.%d.0.%d", a.Base, 10+n) }
func (a addresses) pods() string         { return fmt.Sprintf("10.%d.0.0/16", a.Base+1) }
func (a addresses) podsOf(n int) string  { return fmt.Sprintf("10.%d.%d.0/24", a.Base+1, n) }
func (a addresses) services() string     { return fmt.Sprintf("10.%d.0.0/16", a.Base+2) }
func (a addresses) firstService() string { return fmt.Sprintf("10.%d.0.1", a.Base+2) }
func (a addresses) dns() string          { return fmt.Sprintf("10.%d.0.10", a.Base+2) }
func (a addresses) server() string       { return "https://" + a.api() + ":6443" }
func (a addresses) all() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{a.nodes(), a.pods(), a.services()} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// freeAddresses picks addresses that this machine has no route to, starting with 10.213.0.0.
func freeAddresses() (addresses, error) {
	routes, err := readRoutes("/proc/net/route")
	if err != nil {
		return addresses{}, err
	}
	for base := 213; base <= 252; base += 3 {
		if a := (addresses{base}); !overlaps(a.all(), routes) {
			return a, nil
		}
	}
	return addresses{}, fmt.Errorf("every range from 10.213.0.0/14 to 10.254.0.0/16 is routed on this machine already: take a cluster down first")
}

func overlaps(some, others []netip.Prefix) bool {
	for _, a := range some {
		for _, b := range others {
			if a.Overlaps(b) {
				return true
			}
		}
	}
	return false
}

// readRoutes returns the IPv4 destinations of the kernel's main table, the default route aside.
func readRoutes(path string) ([]netip.Prefix, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	defer f.Close()
	var routes []netip.Prefix
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
		if len(fields) < 8 || fields[0] == "Iface" {
			continue
		}
		destination, err1 := hex.DecodeString(fields[1])
		mask, err2 := hex.DecodeString(fields[7])
		if err1 != nil || err2 != nil || len(destination) != 4 || len(mask) != 4 {
			return nil, fmt.Errorf("%s: cannot read the line %q", path, lines.Text())
		}
		var address [4]byte // the kernel prints the number as the machine's byte order has it
		binary.NativeEndian.PutUint32(address[:], binary.BigEndian.Uint32(destination))
		bits := 0
		for m := binary.BigEndian.Uint32(mask); m != 0; m &= m - 1 {
			bits++
		}
		if bits > 0 {
			routes = append(routes, netip.PrefixFrom(netip.AddrFrom4(address), bits))
		}
	}
	return routes, nil
}
