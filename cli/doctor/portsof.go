// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/substorm/substorm/cli/up"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// port is a port that the Site listens at.
type port struct {
	// network is tcp or udp, address what Go listens at: without a host for all addresses.
	network, address string
	number           int
	// of are those that it is for.
	of []string
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.network) }

// ports are those that the Site listens at: each once, in order. Metrics is where these are served; empty: nowhere.
func (d *declared) ports(listen, metrics string) []port {
	var all []port
	add := func(network, address, of string) {
		i := slices.IndexFunc(all, func(p port) bool { return p.network == network && p.address == address })
		if i >= 0 {
			all[i].of = append(all[i].of, of)
			return
		}
		_, text, _ := net.SplitHostPort(address)
		number, _ := strconv.Atoi(text) // it was made of a number
		all = append(all, port{network, address, number, []string{of}})
	}
	for i := range d.instruments {
		instrument := &d.instruments[i]
		if instrument.Spec.State == v1alpha1.InstrumentRetired {
			continue
		}
		for _, l := range instrument.Spec.Listeners {
			network := "tcp"
			if l.Protocol == v1alpha1.ListenerUDP {
				network = "udp"
			}
			add(network, fmt.Sprintf(":%d", l.Port), fmt.Sprintf("Instrument %q", instrument.Name))
		}
	}
	for i := range d.gateways {
		if q := d.gateways[i].Spec.Quarantine; q != nil {
			for _, number := range q.Ports {
				add("tcp", fmt.Sprintf(":%d", number), "the quarantine")
				add("udp", fmt.Sprintf(":%d", number), "the quarantine")
			}
		}
	}
	serving, _ := up.ListenAddresses(listen, d.servers) // the flag was looked at
	for _, address := range serving {
		add("tcp", address, "a FeedServer (--listen)")
	}
	host, _, _ := net.SplitHostPort(listen)
	for _, number := range d.rsync {
		add("tcp", net.JoinHostPort(host, strconv.Itoa(int(number))), "rsync of a FeedServer (spec.rsync)")
	}
	if metrics != "" {
		add("tcp", metrics, "metrics (--listen-metrics)")
	}
	slices.SortStableFunc(all, func(a, b port) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.network, b.network)) })
	return all
}
