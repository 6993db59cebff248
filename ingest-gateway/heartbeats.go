// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// senders hold what the senders of instruments last said of themselves to this pod.
type senders struct {
	gateway string
	// known says whether there is such an instrument still.
	known func(instrument string) bool

	mu    sync.Mutex
	last  map[string]senderNews
	count uint64 // of heartbeats
}

// senderNews is the count-th heartbeat.
type senderNews struct {
	wire.SenderStatus
	count uint64
}

func newSenders(gateway string, known func(string) bool) *senders {
	return &senders{gateway: gateway, known: known, last: map[string]senderNews{}}
}

func (s *senders) heartbeat(instrument string, h wire.Heartbeat, received time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.last[instrument] = senderNews{h.StatusAt(received, s.gateway), s.count}
}

// since returns what was said after so many heartbeats, by instrument, and how
// many there are now.
func (s *senders) since(count uint64) (map[string]wire.SenderStatus, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := map[string]wire.SenderStatus{}
	for instrument, last := range s.last {
		if last.count > count {
			news[instrument] = last.SenderStatus
		}
	}
	return news, s.count
}

func senderDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("substorm_gateway_sender_"+name, help+" By instrument, as its sender last said to this pod.", []string{"instrument"}, nil)
}

var (
	senderHeartbeat = senderDesc("heartbeat_timestamp_seconds", "When the last heartbeat came, by the gateway's clock.")
	senderOffset    = senderDesc("clock_offset_seconds", "What must be added to the sender's clock to get the gateway's.")
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
}

// Collect implements prometheus.Collector.
func (s *senders) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for instrument, status := range s.last {
		if !s.known(instrument) {
			delete(s.last, instrument)
			continue
		}
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
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
