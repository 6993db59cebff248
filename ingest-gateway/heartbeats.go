// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// senderMemory is how long a sender counts after its last heartbeat: on metered
	// links it sends one each few minutes.
	senderMemory = 15 * time.Minute
	// maxSenders of one instrument are remembered: those that were heard last.
	maxSenders = 32
	// maxAddresses that senders report from are remembered, of all instruments.
	maxAddresses = 16_384
)

// senders hold what the senders of instruments last said of themselves to this pod.
type senders struct {
	gateway string
	// known says whether there is such an instrument still.
	known func(instrument string) bool

	mu    sync.Mutex
	heard map[string]*senderNews // by instrument
	// from is when senders last reported, by the address they came from.
	from  map[netip.Addr]time.Time
	count uint64 // of heartbeats
}

// senderNews is what an instrument's senders said, at last with the count-th heartbeat.
type senderNews struct {
	by    map[string]wire.SenderStatus
	count uint64
	// asked is what senders that take commands are asked to send.
	asked []wire.ChannelSampling
}

func newSenders(gateway string, known func(string) bool) *senders {
	return &senders{gateway: gateway, known: known, heard: map[string]*senderNews{}, from: map[netip.Addr]time.Time{}}
}

func (s *senders) heartbeat(instrument string, h wire.Heartbeat, received time.Time, from netip.Addr) {
	if h.Sender == "" {
		h.Sender = from.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cameFrom(from, received)
	news := s.next(instrument)
	news.by[h.Sender] = h.StatusAt(received, s.gateway)
	news.forget(received)
}

// noteAsked notes what the senders of an instrument are asked to send, for those that take commands.
func (s *senders) noteAsked(instrument string, channels []wire.ChannelSampling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next(instrument).asked = channels
}

// next returns the news of an instrument, to be changed and reported. The caller holds mu.
func (s *senders) next(instrument string) *senderNews {
	s.count++
	news := s.heard[instrument]
	if news == nil {
		news = &senderNews{by: map[string]wire.SenderStatus{}}
		s.heard[instrument] = news
	}
	news.count = s.count
	return news
}

// knows says whether a sender reported of late from an address.
func (s *senders) knows(addr netip.Addr, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.from[addr]
	return known && now.Sub(at) <= senderMemory
}

// cameFrom notes an address. The caller holds mu.
func (s *senders) cameFrom(addr netip.Addr, now time.Time) {
	if _, known := s.from[addr]; !known && len(s.from) >= maxAddresses {
		maps.DeleteFunc(s.from, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > senderMemory })
		if len(s.from) >= maxAddresses {
			return
		}
	}
	s.from[addr] = now
}

// forget keeps those that were heard of late, and no more than maxSenders of them.
func (n *senderNews) forget(now time.Time) {
	maps.DeleteFunc(n.by, func(_ string, s wire.SenderStatus) bool { return now.Sub(s.ReportedAt) > senderMemory })
	for len(n.by) > maxSenders {
		first := ""
		for sender, s := range n.by {
			if first == "" || s.ReportedAt.Before(n.by[first].ReportedAt) {
				first = sender
			}
		}
		delete(n.by, first)
	}
}

// status is what the senders say together; each of them stands in it too.
func (n *senderNews) status() wire.SenderStatus {
	all := slices.SortedFunc(n.eachStatus(), func(a, b wire.SenderStatus) int { return strings.Compare(a.Sender, b.Sender) })
	sum := wire.MergeSenders(all)
	sum.Senders = all
	return sum
}

// eachStatus are the senders, each with what it is asked to send.
func (n *senderNews) eachStatus() iter.Seq[wire.SenderStatus] {
	return func(yield func(wire.SenderStatus) bool) {
		for _, s := range n.by {
			if s.Sampling != nil {
				s.Asked = n.asked
			}
			if !yield(s) {
				return
			}
		}
	}
}

// current is what those say that were heard of late; where there are none, what the
// last ones said.
func (n *senderNews) current(now time.Time) wire.SenderStatus {
	var all []wire.SenderStatus
	for _, s := range n.by {
		if now.Sub(s.ReportedAt) <= senderMemory {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return n.status()
	}
	return wire.MergeSenders(all)
}

// since returns what was said after so many heartbeats, by instrument, and how
// many there are now.
func (s *senders) since(count uint64) (map[string]wire.SenderStatus, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := map[string]wire.SenderStatus{}
	for instrument, heard := range s.heard {
		if heard.count > count && len(heard.by) > 0 {
			news[instrument] = heard.status()
		}
	}
	return news, s.count
}

func senderDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("substorm_gateway_sender_"+name, help+" By instrument, of all senders that this pod heard of late.", []string{"instrument"}, nil)
}

var (
	senderHeartbeat = senderDesc("heartbeat_timestamp_seconds", "When the last heartbeat came, by the gateway's clock.")
	senderOffset    = senderDesc("clock_offset_seconds", "What must be added to the sender's clock to get the gateway's; of several senders the one that is farthest off.")
	senderError     = senderDesc("clock_offset_error_seconds", "How far off the clock offset may be: half of the round trip that measured it.")
	senderObjects   = senderDesc("queue_objects", "Objects that wait at the sender for their receipt.")
	senderBytes     = senderDesc("queue_bytes", "Bytes of the objects that wait at the sender for their receipt.")
	senderOldest    = senderDesc("queue_oldest_timestamp_seconds", "When the oldest object that waits at the sender was observed, by the sender's clock; absent where none waits.")
	senderAside     = senderDesc("set_aside_objects", "Objects that the sender set aside since it started, and somebody must look at.")
)

// Describe implements prometheus.Collector.
func (s *senders) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{senderHeartbeat, senderOffset, senderError, senderObjects, senderBytes, senderOldest, senderAside} {
		to <- d
	}
	describeLinkProbe(to)
}

// Collect implements prometheus.Collector.
func (s *senders) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for instrument, heard := range s.heard {
		if !s.known(instrument) {
			delete(s.heard, instrument)
			continue
		}
		if len(heard.by) == 0 {
			continue
		}
		status := heard.current(now)
		say := func(d *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, instrument)
		}
		say(senderHeartbeat, unixSeconds(status.ReportedAt))
		if status.ClockOffset != nil {
			say(senderOffset, time.Duration(*status.ClockOffset).Seconds())
		}
		if status.RoundTrip != nil {
			say(senderError, time.Duration(*status.RoundTrip).Seconds()/2)
		}
		say(senderObjects, float64(status.QueueObjects))
		say(senderBytes, float64(status.QueueBytes))
		if status.Oldest != nil {
			say(senderOldest, unixSeconds(*status.Oldest))
		}
		say(senderAside, float64(status.SetAside))
		collectLinkProbe(to, instrument, status.LinkProbe)
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
