// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"net"
	"strconv"
	"strings"

	"github.com/substorm/substorm/internal/usage"
)

// maxAddresses bounds what a command line may name.
const maxAddresses = 4096

// ParseAddresses reads what --to takes: host:port or host:first-last, several
// separated by commas. It returns every single host:port, in order.
func ParseAddresses(specs []string) ([]string, error) {
	if len(specs) == 0 {
		return nil, usage.Errorf("--to names no server: give host:port, as in --to gateway.example:30101")
	}
	var all []string
	for one := range strings.SplitSeq(strings.Join(specs, ","), ",") {
		host, first, last, err := parseAddress(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if len(all)+last-first >= maxAddresses {
			return nil, usage.Errorf("--to names more than %d addresses", maxAddresses)
		}
		for port := first; port <= last; port++ {
			all = append(all, net.JoinHostPort(host, strconv.Itoa(port)))
		}
	}
	return all, nil
}

func parseAddress(spec string) (host string, first, last int, err error) {
	host, ports, err := net.SplitHostPort(spec)
	if err != nil || host == "" {
		return "", 0, 0, usage.Errorf("server %q is not host:port or host:first-last", spec)
	}
	low, high, isRange := strings.Cut(ports, "-")
	if !isRange {
		high = low
	}
	if first, err = parsePort(low); err == nil {
		last, err = parsePort(high)
	}
	if err != nil || first > last {
		return "", 0, 0, usage.Errorf("server %q: a port is a number from 1 to 65535, a range first-last", spec)
	}
	return host, first, last, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return int(n), err
}
