// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"time"
)

const senderKey = "sender."

// SenderStatusKey is where a gateway pod reports about an instrument's senders.
func SenderStatusKey(instrument, gateway string) string {
	return senderKey + instrument + "." + gateway
}

// ParseSenderStatusKey returns the instrument and the pod that a key of the status
// bucket names, and false for other keys.
func ParseSenderStatusKey(key string) (instrument, gateway string, ok bool) {
	rest, ok := strings.CutPrefix(key, senderKey)
	instrument, gateway, both := strings.Cut(rest, ".")
	return instrument, gateway, ok && both && instrument != "" && gateway != ""
}

// SenderStatus is what a sender last said of itself, or what several did together,
// see MergeSenders.
type SenderStatus struct {
	// Gateway is the pod that heard it, at ReportedAt by its clock.
	Gateway string `json:"gateway"`
	// Sender as in Heartbeat, or an address; empty for several.
	Sender     string    `json:"sender,omitempty"`
	ReportedAt time.Time `json:"reportedAt"`
	// As in Heartbeat.
	ClockOffset  *Span      `json:"clockOffset,omitempty"`
	RoundTrip    *Span      `json:"roundTrip,omitempty"`
	QueueObjects int64      `json:"queueObjects"`
	QueueBytes   int64      `json:"queueBytes"`
	Oldest       *time.Time `json:"oldest,omitempty"`
	SetAside     int64      `json:"setAside,omitempty"`
	Version      string     `json:"version,omitempty"`
	// Asked is what the pod tells the sender of how often to observe; empty where
	// the sender takes no commands.
	Asked    []ChannelSampling `json:"asked,omitempty"`
	Sampling *SamplingReport   `json:"sampling,omitempty"`
	// LinkProbe of several senders is the worst of theirs.
	LinkProbe *LinkProbe `json:"linkProbe,omitempty"`
	// Senders are those that the pod has heard of late, each by itself.
	Senders []SenderStatus `json:"senders,omitempty"`
}

// StatusAt is what a gateway that heard it at a time reports of a heartbeat.
func (h Heartbeat) StatusAt(received time.Time, gateway string) SenderStatus {
	return SenderStatus{
		Gateway: gateway, Sender: h.Sender, ReportedAt: received, ClockOffset: h.ClockOffset, RoundTrip: h.RoundTrip,
		QueueObjects: h.QueueObjects, QueueBytes: h.QueueBytes, Oldest: h.Oldest, SetAside: h.SetAside, Version: h.Version,
		Sampling: h.Sampling, LinkProbe: h.LinkProbe,
	}
}

// MergeSenders returns the worst of several senders: the clock that is farthest off, the sums of what waits and of what was set aside,
// the oldest; when the last of them was heard, by which pod, and its version; the command and the sampling of the last one that takes
// commands. The last status of each sender counts.
func MergeSenders(all []SenderStatus) SenderStatus {
	last := map[string]SenderStatus{}
	for _, s := range all {
		if before, known := last[s.Sender]; !known || s.ReportedAt.After(before.ReportedAt) {
			last[s.Sender] = s
		}
	}
	var sum SenderStatus
	var commanded time.Time
	for _, s := range last {
		if s.Sampling != nil && (sum.Sampling == nil || s.ReportedAt.After(commanded)) {
			sum.Asked, sum.Sampling, commanded = s.Asked, s.Sampling, s.ReportedAt
		}
		if s.LinkProbe.worse(sum.LinkProbe) {
			sum.LinkProbe = s.LinkProbe
		}
		if s.ReportedAt.After(sum.ReportedAt) || s.ReportedAt.Equal(sum.ReportedAt) && s.Version > sum.Version {
			sum.ReportedAt, sum.Gateway, sum.Version = s.ReportedAt, s.Gateway, s.Version
		}
		if o := s.ClockOffset; o != nil && (sum.ClockOffset == nil || time.Duration(*o).Abs() > time.Duration(*sum.ClockOffset).Abs()) {
			sum.ClockOffset, sum.RoundTrip = o, s.RoundTrip
		}
		if s.Oldest != nil && (sum.Oldest == nil || s.Oldest.Before(*sum.Oldest)) {
			sum.Oldest = s.Oldest
		}
		sum.QueueObjects += s.QueueObjects
		sum.QueueBytes += s.QueueBytes
		sum.SetAside += s.SetAside
		sum.Sender = s.Sender
	}
	if len(last) != 1 {
		sum.Sender = ""
	}
	return sum
}
