// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/wire"
)

// openLinkProbe opens the port on which the link to the pool is measured, where one is declared.
func (g *gateway) openLinkProbe() (err error) {
	if g.cfg.LinkProbePort == 0 {
		return nil
	}
	packets := metric.Counters(g.metrics, "substorm_gateway_link_probe_packets_total",
		"STAMP packets that came to measure the link to this pod, by what became of them; only Reflected ones got an answer.", "result")
	for _, v := range stamp.Verdicts() {
		packets.WithLabelValues(string(v))
	}
	known := &sources{}
	g.linkProbe, err = stamp.ListenReflector(net.JoinHostPort(g.cfg.ListenAddress, strconv.Itoa(int(g.cfg.LinkProbePort))), stamp.ReflectorConfig{
		Knows: func(addr netip.Addr) bool {
			return g.senders.knows(addr, time.Now()) || known.hold(g.registry.Current(), addr)
		},
		Count:  func(v stamp.Verdict) { packets.WithLabelValues(string(v)).Inc() },
		Logger: g.log,
	})
	return err
}

// sources are the addresses that instruments name. It belongs to one goroutine.
type sources struct {
	of       *intake.Snapshot
	prefixes map[netip.Prefix]struct{}
	bits     []int
}

// hold says whether an instrument names an address, or a network that it is of.
func (s *sources) hold(current *intake.Snapshot, addr netip.Addr) bool {
	if s.of != current {
		s.read(current)
	}
	for _, bits := range s.bits {
		if p, err := addr.Prefix(bits); err == nil {
			if _, known := s.prefixes[p]; known {
				return true
			}
		}
	}
	return false
}

func (s *sources) read(current *intake.Snapshot) {
	s.of, s.prefixes, s.bits = current, map[netip.Prefix]struct{}{}, nil
	for _, in := range current.Instruments() {
		if in.Retired {
			continue
		}
		for _, listener := range in.Listeners {
			for _, p := range listener.Sources {
				s.prefixes[p] = struct{}{}
				if !slices.Contains(s.bits, p.Bits()) {
					s.bits = append(s.bits, p.Bits())
				}
			}
		}
	}
}

func linkDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("substorm_link_"+name, help+" As a sender of the instrument reports it, of several the one whose link is worst.",
		append([]string{"instrument"}, labels...), nil)
}

var (
	linkRoundTrip = linkDesc("round_trip_seconds", "Round trip between sender and gateway over the last minutes: min, mean, p99 and max.", "statistic")
	linkJitter    = linkDesc("jitter_seconds", "Jitter between sender and gateway (RFC 3550), out to the gateway and back.", "direction")
	linkLoss      = linkDesc("loss_ratio", "Share of the packets between sender and gateway that were lost over the last minutes: "+
		"out to the gateway, back, and all, which includes those of which nobody knows.", "direction")
	linkPackets = linkDesc("packets", "Packets between sender and gateway that the other figures are of.")
)

func describeLinkProbe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{linkRoundTrip, linkJitter, linkLoss, linkPackets} {
		to <- d
	}
}

func collectLinkProbe(to chan<- prometheus.Metric, instrument string, p *wire.LinkProbe) {
	if p == nil {
		return
	}
	say := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{instrument}, labels...)...)
	}
	say(linkPackets, float64(p.Sent))
	for direction, n := range map[string]int64{"out": p.LostOut, "back": p.LostBack, "all": p.Lost()} {
		say(linkLoss, float64(n)/float64(max(1, p.Sent)), direction)
	}
	if p.Delay == nil {
		return
	}
	for statistic, d := range map[string]wire.Span{"min": p.Delay.Min, "mean": p.Delay.Mean, "p99": p.Delay.P99, "max": p.Delay.Max} {
		say(linkRoundTrip, time.Duration(d).Seconds(), statistic)
	}
	say(linkJitter, time.Duration(p.Delay.JitterOut).Seconds(), "out")
	say(linkJitter, time.Duration(p.Delay.JitterBack).Seconds(), "back")
}
