// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
)

// TestFill: what waits in the kernel's buffer of a port is part of it.
func TestFill(t *testing.T) {
	source, port, other := kernel.New(kernel.Config{ReceiveBuffer: 256 << 10}), freePort(t), freePort(t)
	if failed := source.Listen([]uint16{port, other}); len(failed) > 0 { // no reader yet
		t.Fatal(failed)
	}
	t.Cleanup(func() { source.Listen(nil) })
	if fill := source.Fill(); fill != 0 {
		t.Errorf("nothing came, and the buffer is filled to %v", fill)
	}
	conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := 0.
	for range 3 {
		for range 20 {
			if _, err := conn.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		fill := source.Fill()
		if fill <= before || fill > 1.1 { // the kernel takes a last one that does not fit
			t.Errorf("more came, and the buffer is filled to %v, and was to %v", fill, before)
		}
		before = fill
	}
	source.Listen([]uint16{other})
	if fill := source.Fill(); fill != 0 {
		t.Errorf("the port is closed, and another one's buffer is filled to %v", fill)
	}
}
