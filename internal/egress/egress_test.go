// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/substorm/substorm/internal/egress"
)

// never are where no rule leads, whatever is declared.
var never = []string{
	"169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
	"64:ff9b::169.254.169.254", "64:ff9b::168.63.129.16", "2002:a9fe:a9fe::1", "2002:a83f:8110::",
}

// notPublic are where only a declaration leads.
var notPublic = []string{
	"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "10.96.0.1", "172.20.1.1", "192.168.8.9", "100.64.0.1", "fd12:3456::1",
	"0.1.2.3", "192.0.0.1", "192.88.99.1", "198.18.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.9", "240.0.0.1", "255.255.255.255", "224.0.0.1", "ff02::1",
	"64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "2002:a00:1::1", "2001:0:a00:1::1", "2001:db8::9", "3fff::1", "::10.0.0.1", "100::1", "fec0::1",
}

var public = []string{"198.41.0.4", "::ffff:198.41.0.4", "2001:500:2::c", "2620:fe::fe", "64:ff9b::198.41.0.4"}

func TestRules(t *testing.T) {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	rules := []struct {
		name   string
		rule   egress.Rule
		may    []string
		mayNot []string
	}{
		{"networks, of which none is declared", egress.Networks(nil), public, notPublic},
		{"networks, of which all are declared", egress.Networks(everything), append(public, notPublic...), nil},
		{"some networks", egress.Networks([]netip.Prefix{netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("fd00:7::/32")}),
			append(public, "192.168.7.9", "fd00:7::9", "::ffff:192.168.7.9"), notPublic},
		{"a public name", egress.Host("services.example.org"), public, notPublic},
		{"this computer", egress.Host("LOCALHOST."), []string{"127.0.0.1", "::1"}, []string{"10.0.0.1", "198.41.0.4"}},
		{"a Service", egress.Host("weather.monitoring.svc"), []string{"10.96.0.12", "198.41.0.4"}, []string{"127.0.0.1"}},
		{"an address", egress.Host("192.168.1.7"), []string{"192.168.1.7"}, []string{"192.168.1.8", "198.41.0.4"}},
		{"a partner", egress.Partner(), append(public, notPublic...), nil},
	}
	for _, c := range rules {
		for _, address := range c.may {
			if err := c.rule.Judge(netip.MustParseAddr(address)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		for _, address := range c.mayNot {
			if err := c.rule.Judge(netip.MustParseAddr(address)); !errors.Is(err, egress.ErrNotPublic) {
				t.Errorf("%s: %s: %v", c.name, address, err)
			}
		}
		for _, address := range never {
			if err := c.rule.Judge(netip.MustParseAddr(address)); !errors.Is(err, egress.ErrCredentials) {
				t.Errorf("%s: %s: %v", c.name, address, err)
			}
		}
	}
	if err := egress.Host("169.254.169.254").Judge(netip.MustParseAddr("169.254.169.254")); !errors.Is(err, egress.ErrCredentials) {
		t.Errorf("an address of the link that is declared: %v", err)
	}
}
