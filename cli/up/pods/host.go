// SPDX-License-Identifier: Apache-2.0

package pods

import "net"

// hostAddress is the address by which other computers reach this one: the first that is neither loopback nor link-local, IPv4 before
// IPv6; Address if there is none.
func hostAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return Address
	}
	six := ""
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		if network.IP.To4() != nil {
			return network.IP.String()
		}
		if six == "" {
			six = network.IP.String()
		}
	}
	if six != "" {
		return six
	}
	return Address
}
