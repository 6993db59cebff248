// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/wire"
)

// openPath opens the port on which the way to the pool is measured, where there is
// to be one.
func (g *gateway) openPath() (err error) {
	if g.cfg.PathPort == 0 {
		return nil
	}
	packets := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "substorm_gateway_path_packets_total",
		Help: "STAMP packets that came to measure the way to this pod, by what became of them; only Reflected ones got an answer.",
	}, []string{"result"})
	for _, v := range stamp.Verdicts() {
		packets.WithLabelValues(string(v))
	}
	g.metrics.MustRegister(packets)
	known := &sources{}
	g.path, err = stamp.ListenReflector(fmt.Sprintf(":%d", g.cfg.PathPort), stamp.ReflectorConfig{
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
		for _, way := range in.Ways {
			for _, p := range way.Sources {
				s.prefixes[p] = struct{}{}
				if !slices.Contains(s.bits, p.Bits()) {
					s.bits = append(s.bits, p.Bits())
				}
			}
		}
	}
}

func pathDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("substorm_path_"+name, help+" As a sender of the instrument reports it, of several the one whose path is worst.",
		append([]string{"instrument"}, labels...), nil)
}

var (
	pathRoundTrip = pathDesc("round_trip_seconds", "Round trip between sender and gateway over the last minutes: min, mean, p99 and max.", "statistic")
	pathJitter    = pathDesc("jitter_seconds", "Jitter between sender and gateway (RFC 3550), out to the gateway and back.", "direction")
	pathLoss      = pathDesc("loss_ratio", "Share of the packets between sender and gateway that were lost over the last minutes: "+
		"out to the gateway, back, and all, which includes those of which nobody knows.", "direction")
	pathPackets = pathDesc("packets", "Packets between sender and gateway that the other figures are of.")
)

func describePath(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pathRoundTrip, pathJitter, pathLoss, pathPackets} {
		to <- d
	}
}

func collectPath(to chan<- prometheus.Metric, instrument string, p *wire.Path) {
	if p == nil {
		return
	}
	say := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{instrument}, labels...)...)
	}
	say(pathPackets, float64(p.Sent))
	for direction, n := range map[string]int64{"out": p.LostOut, "back": p.LostBack, "all": p.Lost()} {
		say(pathLoss, float64(n)/float64(max(1, p.Sent)), direction)
	}
	if p.Delay == nil {
		return
	}
	for statistic, d := range map[string]wire.Span{"min": p.Delay.Min, "mean": p.Delay.Mean, "p99": p.Delay.P99, "max": p.Delay.Max} {
		say(pathRoundTrip, time.Duration(d).Seconds(), statistic)
	}
	say(pathJitter, time.Duration(p.Delay.JitterOut).Seconds(), "out")
	say(pathJitter, time.Duration(p.Delay.JitterBack).Seconds(), "back")
}
