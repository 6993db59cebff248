// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net"
	"testing"
)

// A port is given to one test at a time, and not while somebody listens on it.
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
