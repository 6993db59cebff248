// SPDX-License-Identifier: Apache-2.0

// Package observed is the state of a Site as its programs report it, and as the registry has it.
package observed

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slices"
	"time"

	"github.com/substorm/substorm/internal/observing"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// ReportAge is how old the last report of a pod that reports may be.
	ReportAge = 3 * wire.GatewayReportInterval
	// ReportGrace is how much longer a silence lasts before it is shown.
	ReportGrace = observing.Silence - ReportAge
	// FiguresEvery is how often figures in a status are updated.
	FiguresEvery = time.Minute
	// InstrumentFiguresEvery is the same for Instruments, of which there are many.
	InstrumentFiguresEvery = 10 * time.Minute
	// LastReceivedStep is the step to which status.lastReceivedTime is rounded down.
	LastReceivedStep = 10 * time.Minute
)

// Bus says whether the operator reads the reports of gateways, and since when.
type Bus struct {
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
}

// GatewayReport is a gateway pod's report, and when it was seen by the operator's own clock: a pod's clock may be wrong.
type GatewayReport struct {
	wire.GatewayStatus
	Seen time.Time `json:"seen"`
}

// InstrumentReport is a gateway pod's report about an instrument.
type InstrumentReport struct {
	Gateway string `json:"gateway"`
	// LastReceived by the operator's own clock.
	LastReceived time.Time `json:"lastReceived"`
	// Listeners are when data last arrived at each, by name and by the same clock.
	Listeners map[string]time.Time `json:"listeners,omitempty"`
	Day       wire.Day             `json:"day"`
	Objects   uint64               `json:"objects"`
	Datagrams uint64               `json:"datagrams"`
	Bytes     uint64               `json:"bytes"`
	// Achieved as in wire.InstrumentStatus.
	Achieved []wire.AchievedSampling `json:"achieved,omitempty"`
}

// InstrumentReportOf is the report of a pod that was seen then. The pod's clock may be
// wrong; how long before its report it received something is right.
func InstrumentReportOf(pod string, status wire.InstrumentStatus, seen time.Time) InstrumentReport {
	report := InstrumentReport{Gateway: pod, Day: status.Day, Objects: status.Objects, Datagrams: status.Datagrams, Bytes: status.Bytes, Achieved: status.Achieved}
	ours := func(theirs time.Time) time.Time { return seen.Add(-max(0, status.ReportedAt.Sub(theirs))) }
	if !status.LastReceived.IsZero() {
		report.LastReceived = ours(status.LastReceived)
	}
	for name, at := range status.Listeners {
		if report.Listeners == nil {
			report.Listeners = make(map[string]time.Time, len(status.Listeners))
		}
		report.Listeners[name] = ours(at)
	}
	return report
}

// SenderReport is the last report of an instrument's senders about themselves, and when the operator saw it, by its own clock.
type SenderReport struct {
	wire.SenderStatus
	Seen time.Time `json:"seen"`
}

// RegistryState is the content of a Site's registry as the operator knows it.
type RegistryState struct {
	// Revision that is complete, and when it became so. 0: none is known yet.
	Revision  int64     `json:"revision"`
	WrittenAt time.Time `json:"writtenAt"`
	// Entries by instrument, and the entries of Feeds, FeedConsumers and MirrorPartners by their names.
	Entries   map[string]wire.InstrumentEntry `json:"entries"`
	Feeds     map[string]wire.FeedEntry       `json:"feeds,omitempty"`
	Consumers map[string]wire.ConsumerEntry   `json:"consumers,omitempty"`
	Readers   map[string]wire.ReaderEntry     `json:"readers,omitempty"`
	Mirrors   map[string]wire.MirrorEntry     `json:"mirrors,omitempty"`
	// Closed are instruments that left the registry, and were closed to some.
	Closed map[string]wire.ClosedEntry `json:"closed,omitempty"`
}

// FeedServerReport is the report of a pod of feed-server, and when it was seen by the operator's own clock.
type FeedServerReport struct {
	wire.FeedServerStatus
	Seen time.Time `json:"seen"`
}

// ConsumerReport is the report of a pod of feed-server about a FeedConsumer.
type ConsumerReport struct {
	wire.ConsumerStatus
	Pod  string    `json:"pod"`
	Seen time.Time `json:"seen"`
}

// Fresh returns the reports of a pool's pods that report, and the time of its
// latest report of all.
func Fresh(reports []GatewayReport, pool string, now time.Time) (alive []GatewayReport, latest time.Time) {
	for _, r := range reports {
		if r.Pool != pool {
			continue
		}
		if r.Seen.After(latest) {
			latest = r.Seen
		}
		if now.Sub(r.Seen) <= ReportAge {
			alive = append(alive, r)
		}
	}
	return alive, latest
}

// IsOf says whether a report came from this incarnation of a pod.
func (r ConsumerReport) IsOf(s FeedServerReport) bool {
	return s.Pod == r.Pod && s.Incarnation == r.Incarnation
}

// Differs returns whether conditions, or the status of commands, may differ for a report that follows another.
func (r SenderReport) Differs(was SenderReport) bool {
	offset := func(r SenderReport) time.Duration {
		if r.ClockOffset == nil {
			return 0
		}
		return RoundedOffset(time.Duration(*r.ClockOffset))
	}
	return r.Seen.Sub(was.Seen) > HeartbeatAge || !r.sameCommands(was) || (r.ClockOffset == nil) != (was.ClockOffset == nil) || offset(r) != offset(was)
}

// sameCommands: the same is asked of the sender, and it does the same.
func (r SenderReport) sameCommands(as SenderReport) bool {
	obeys := func(r SenderReport) wire.SamplingReport {
		if r.Sampling == nil {
			return wire.SamplingReport{}
		}
		return wire.SamplingReport{Obeys: r.Sampling.Obeys, Problem: r.Sampling.Problem}
	}
	return slices.Equal(r.Asked, as.Asked) && (r.Sampling == nil) == (as.Sampling == nil) &&
		slices.Equal(obeys(r).Obeys, obeys(as).Obeys) && obeys(r).Problem == obeys(as).Problem
}

// HeartbeatAge is how old the last heartbeat may be: senders on metered links
// send one each few minutes.
const HeartbeatAge = 15 * time.Minute

// RoundedOffset keeps two or three digits: a status is not written for each
// heartbeat.
func RoundedOffset(d time.Duration) time.Duration {
	step := time.Millisecond
	for d.Abs()/100 >= step {
		step *= 10
	}
	return d.Round(step)
}

// Rounded returns a time of a report as statuses have it, rounded down to LastReceivedStep; nil for the zero time.
func Rounded(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.UTC().Truncate(LastReceivedStep)))
}

// FreshServers returns the feed servers that report.
func FreshServers(servers []FeedServerReport, now time.Time) []FeedServerReport {
	return slices.DeleteFunc(slices.Clone(servers), func(s FeedServerReport) bool { return now.Sub(s.Seen) > ReportAge })
}
