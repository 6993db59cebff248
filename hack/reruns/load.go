// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// loads are what /proc/loadavg said at some times, ascending.
type loads []struct {
	at   time.Time
	says string
}

// readLoads reads a file of them; no name: there are none.
func readLoads(name string) (all loads, err error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		seconds, says, _ := strings.Cut(lines.Text(), " ")
		at, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q does not begin with seconds since 1970", name, lines.Text())
		}
		all = append(all, struct {
			at   time.Time
			says string
		}{time.Unix(at, 0), says})
	}
	return all, lines.Err()
}

// at is the last load that was noted before an instant.
func (l loads) at(when time.Time) string {
	says := "unknown"
	for _, entry := range l {
		if entry.at.After(when) {
			break
		}
		says = entry.says
	}
	return says
}
