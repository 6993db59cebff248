// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net"
	"testing"
)

// A port is given to one test at a time, and not while a process listens on it.
func TestPortIsGivenOnce(t *testing.T) {
	port := FreePort(t)
	if again, err := takePort(port); again != nil || err != nil {
		t.Errorf("port %d, which a test has: %v, %v", port, again, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := l.Addr().(*net.TCPAddr).Port
	if taken, err := takePort(busy); taken != nil || err != nil {
		t.Errorf("port %d, on which somebody listens: %v, %v", busy, taken, err)
	}
	l.Close()
	free, err := takePort(busy)
	if free == nil || err != nil {
		t.Fatal(fmt.Errorf("port %d is free again: %v, %w", busy, free, err))
	}
	free.Close()
}

// Adjacent ports are given together, and where one of them is taken, none.
func TestAdjacentPorts(t *testing.T) {
	const count = 20
	first := FreePorts(t, count)
	for port := first; port < first+count; port++ {
		if again, err := takePort(port); again != nil || err != nil {
			t.Errorf("port %d, which a test has: %v, %v", port, again, err)
		}
	}
	if all, err := takePorts(first-1, 2); all != nil || err != nil {
		t.Errorf("ports of which one is taken: %v, %v", all, err)
	}
	if before, err := takePort(first - 1); err != nil {
		t.Error(err)
	} else if before != nil { // otherwise another process has it
		before.Close()
	}
}
