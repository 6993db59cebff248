// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/observed"
)

// freshSender is the senders' report, nil if it is too old.
func (v View) freshSender() *observed.SenderReport {
	if v.Sender == nil || v.Now.Sub(v.Sender.Seen) > observed.HeartbeatAge {
		return nil
	}
	return v.Sender
}

// sampling is the sampling that is asked for: the gateways' commands if a sender takes commands, else the declared one; and the sender's
// report about it.
func (v View) sampling() *v1alpha1.SamplingStatus {
	declared, said := entries.SamplingEntry(v.Instrument.Spec.Sampling), v.freshSender()
	commanded := said != nil && said.Sampling != nil
	if declared == nil && !commanded {
		return nil
	}
	asked := []wire.ChannelSampling{{State: wire.SamplingObserving}}
	if declared != nil {
		asked = declared.Channels
	}
	status := &v1alpha1.SamplingStatus{}
	if commanded {
		if len(said.Asked) > 0 {
			asked = said.Asked
		}
		status.Outcome = v1alpha1.SamplingNotFollowed
		if slices.EqualFunc(asked, said.Sampling.Obeys, func(asked, followed wire.ChannelSampling) bool {
			asked.By = ""
			return asked == followed
		}) {
			status.Outcome = v1alpha1.SamplingFollowed
		}
		status.Problem = said.Sampling.Problem[:min(len(said.Sampling.Problem), wire.MaxProblem)]
	}
	for _, c := range asked {
		status.Channels = append(status.Channels, askedOf(c))
	}
	achieved := v.received()
	if commanded {
		achieved = append(achieved, said.Sampling.Achieved...)
	}
	v.achieved(status, achieved)
	return status
}

// received is how often datagrams come to all gateways together, by channel.
func (v View) received() []wire.AchievedSampling {
	perSecond := map[string]float64{}
	slack := 2*wire.GatewayReportInterval + wire.TelemetryReportWait(v.Instrument.Spec.Cadence.Interval.Duration)
	for _, r := range v.Reports {
		since := v.Now.Sub(r.LastReceived)
		for _, a := range r.Achieved {
			interval := time.Duration(a.Interval)
			if since > 3*interval+slack { // it no longer arrives, or arrives at another pod
				interval = since
			}
			if interval > 0 && since < observed.HeartbeatAge {
				perSecond[a.Channel] += 1 / interval.Seconds()
			}
		}
	}
	var all []wire.AchievedSampling
	for _, channel := range slices.Sorted(maps.Keys(perSecond)) {
		all = append(all, wire.AchievedSampling{Channel: channel, Interval: wire.Span(float64(time.Second) / perSecond[channel])})
	}
	return all
}

func askedOf(c wire.ChannelSampling) v1alpha1.ChannelSamplingStatus {
	s := v1alpha1.ChannelSamplingStatus{Name: c.Channel, State: v1alpha1.SamplingState(c.State), AskedBy: c.By}
	if c.IntervalMillis > 0 {
		s.Asked = &metav1.Duration{Duration: c.Interval()}
	}
	return s
}

// achieved adds the senders' and gateways' observations to the request. Status has the request, which comes first.
func (v View) achieved(status *v1alpha1.SamplingStatus, all []wire.AchievedSampling) {
	was := map[string]*metav1.Duration{}
	if old := v.Instrument.Status.Sampling; old != nil {
		for _, c := range old.Channels {
			was[c.Name] = c.Achieved
		}
	}
	for _, a := range all {
		i := slices.IndexFunc(status.Channels, func(c v1alpha1.ChannelSamplingStatus) bool { return c.Name == a.Channel })
		if i < 0 {
			i = len(status.Channels)
			as := status.Channels[0]
			as.Name, as.Achieved = a.Channel, nil
			status.Channels = append(status.Channels, as)
		}
		status.Channels[i].Achieved = steady(was[a.Channel], time.Duration(a.Interval))
	}
}

// linkProbe reports latency and loss of packets, in figures that stay the same while nothing changes much.
func (v View) linkProbe() *v1alpha1.LinkProbeStatus {
	said := v.freshSender()
	if said == nil || said.LinkProbe == nil {
		return nil
	}
	p, was := said.LinkProbe, v.Instrument.Status.LinkProbe
	if was == nil || was.Address != p.To {
		was = &v1alpha1.LinkProbeStatus{LossPerMille: -1, LossOutPerMille: -1, LossBackPerMille: -1}
	}
	status := &v1alpha1.LinkProbeStatus{
		Address:          p.To[:min(len(p.To), wire.MaxLinkProbeAddress)],
		LossPerMille:     steadyLoss(was.LossPerMille, p.Lost(), p.Sent),
		LossOutPerMille:  steadyLoss(was.LossOutPerMille, p.LostOut, p.Sent),
		LossBackPerMille: steadyLoss(was.LossBackPerMille, p.LostBack, p.Sent),
	}
	if d := p.Delay; d != nil {
		status.RoundTrip = steady(was.RoundTrip, time.Duration(d.Mean))
		status.RoundTripP99 = steady(was.RoundTripP99, time.Duration(d.P99))
		status.RoundTripMax = steady(was.RoundTripMax, time.Duration(d.Max))
		status.JitterOut = steady(was.JitterOut, time.Duration(d.JitterOut))
		status.JitterBack = steady(was.JitterBack, time.Duration(d.JitterBack))
	}
	return status
}

// steady is a figure of two digits, or the current one if it differs by no more than a quarter: else each heartbeat of each sender would be
// a write.
func steady(was *metav1.Duration, is time.Duration) *metav1.Duration {
	if was != nil && (is-was.Duration).Abs() <= was.Duration/4 {
		return was
	}
	step := time.Microsecond
	for is.Abs()/100 >= step {
		step *= 10
	}
	return &metav1.Duration{Duration: is.Round(step)}
}

// steadyLoss is how many of 1000 were lost, or the current figure if that is near.
func steadyLoss(was int32, lost, sent int64) int32 {
	is := int32((1000*lost + sent/2) / max(1, sent))
	if lost > 0 {
		is = max(1, is)
	}
	near := max(5, was/4)
	if was > 0 && is > 0 && is-was <= near && was-is <= near {
		return was
	}
	return is
}
