// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Drops is how many datagrams the sockets of a port have dropped since they were
// opened: the last column of /proc/net/udp and udp6 (proc(5)).
func Drops(port int) (int64, error) {
	total, sockets := int64(0), 0
	for _, file := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n, drops, err := dropsIn(string(text), port)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total, sockets = total+drops, sockets+n
	}
	if sockets == 0 {
		return 0, fmt.Errorf("nobody receives on UDP port %d", port)
	}
	return total, nil
}

func dropsIn(table string, port int) (sockets int, drops int64, err error) {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 13 || !strings.HasSuffix(fields[1], suffix) {
			continue
		}
		n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("the drops of %s: %w", fields[1], err)
		}
		sockets, drops = sockets+1, drops+n
	}
	return sockets, drops, nil
}
