// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// It is the address that decides to which a connection is made, not the name.
func TestDialer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "udp"} {
		for _, host := range []string{"localhost", "127.0.0.1"} {
			var nowhere Config
			if c, err := nowhere.dialer().DialContext(t.Context(), network, net.JoinHostPort(host, port)); !errors.Is(err, errNotAllowed) {
				t.Errorf("%s to %s: %v, %v", network, host, c, err)
			}
			here := Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
			c, err := here.dialer().DialContext(t.Context(), network, net.JoinHostPort(host, port))
			if err != nil {
				t.Errorf("%s to %s, which is declared: %v", network, host, err)
				continue
			}
			c.Close()
		}
	}
}
