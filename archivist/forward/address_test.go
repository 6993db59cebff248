// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// Copies go to public addresses and to declared networks, whatever name an address has.
func TestMayGoTo(t *testing.T) {
	declared := Config{Networks: []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("fd00:7::/32")}}
	for address, want := range map[string]bool{
		"203.0.113.9": true, "2001:db8::9": true, "::ffff:203.0.113.9": true, "192.168.7.9": true, "fd00:7::9": true, "::ffff:192.168.7.9": true,
		"127.0.0.1": false, "127.8.9.10": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
		"10.96.0.1": false, "172.20.1.1": false, "192.168.8.9": false, "100.64.0.1": false, "fd12:3456::1": false,
	} {
		if err := declared.mayGoTo(netip.MustParseAddr(address)); (err == nil) != want || err != nil && !errors.Is(err, errNotAllowed) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

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
