// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"time"
)

// The defaults of HorizontalPodAutoscaler and of the metrics that it reads (see the package's documentation).
const (
	hpaSync          = 15 * time.Second
	hpaTolerance     = 0.1
	hpaStabilization = 5 * time.Minute
	// hpaMostTimes and hpaMostPods bound a sync upwards; the greater one counts.
	hpaMostTimes, hpaMostPods = 2, 4
	metricsResolution         = 15 * time.Second
	kubeletStats              = 10 * time.Second
)

// mean averages a figure between two readings.
type mean struct {
	sum  float64
	over time.Duration
}

func (m *mean) add(value float64, during time.Duration) {
	m.sum += value * during.Seconds()
	m.over += during
}

func (m *mean) take() float64 {
	value := m.sum / max(m.over.Seconds(), 1e-9)
	*m = mean{}
	return value
}

// scaler is the part of HorizontalPodAutoscaler that does not depend on the metric.
type scaler struct {
	recommended []recommendation // none after one exceeds it
}

type recommendation struct {
	at       time.Time
	replicas int32
}

// desired is the number of pods for the use of all pods, in pods.
func (s *scaler) desired(now time.Time, used float64, ready, replicas int32) int32 {
	wanted := int32(math.Ceil(used/target - 1e-9))
	// The ratio is of the pods that report; those that are not ready count as idle when it asks for more.
	ratio := used / float64(max(1, ready)) / target
	if ratio > 1 {
		ratio = max(1, used/float64(replicas)/target)
	}
	if math.Abs(ratio-1) <= hpaTolerance {
		wanted = replicas
	}
	wanted = min(max(MinPods, wanted), MaxPods)
	for len(s.recommended) > 0 && now.Sub(s.recommended[0].at) >= hpaStabilization {
		s.recommended = s.recommended[1:]
	}
	for n := len(s.recommended); n > 0 && s.recommended[n-1].replicas <= wanted; n-- {
		s.recommended = s.recommended[:n-1]
	}
	s.recommended = append(s.recommended, recommendation{now, wanted})
	if wanted < replicas {
		wanted = min(replicas, s.recommended[0].replicas)
	}
	return min(wanted, max(hpaMostTimes*replicas, replicas+hpaMostPods))
}

// hpa scales on CPU; pods use as much of it as they carry.
type hpa struct {
	scaler
	kubelet, metrics, sync timer
	using                  mean
	// what the kubelet, and then metrics-server, last knew: use of all pods, and how many reported.
	atKubelet, atMetrics usage
}

type usage struct {
	used float64
	pods int32
}

func newHPA(s *Scenario) Policy {
	return &hpa{kubelet: s.timer("kubelet", kubeletStats), metrics: s.timer("metrics-server", metricsResolution), sync: s.timer("sync", hpaSync)}
}

// Decide implements Policy.
func (h *hpa) Decide(now time.Time, seen Seen) int32 {
	h.using.add(seen.Used, seen.For)
	// The order is from the last in the chain to the first: each reads what the one before it knew until now.
	replicas := seen.Replicas
	if h.sync.due(now) && h.atMetrics.pods > 0 {
		replicas = h.desired(now, h.atMetrics.used, h.atMetrics.pods, seen.Replicas)
	}
	if h.metrics.due(now) {
		h.atMetrics = h.atKubelet
	}
	if h.kubelet.due(now) {
		h.atKubelet = usage{h.using.take(), seen.Ready}
	}
	return replicas
}

const kedaPolling = 30 * time.Second

// keda lets HorizontalPodAutoscaler scale on its polled values: the load since the last poll.
type keda struct {
	scaler
	poll, sync timer
	asked      mean
	polled     float64
	known      bool
}

func newKEDA(s *Scenario) Policy {
	return &keda{poll: s.timer("poll", kedaPolling), sync: s.timer("sync", hpaSync)}
}

// Decide implements Policy.
func (k *keda) Decide(now time.Time, seen Seen) int32 {
	k.asked.add(seen.Load, seen.For)
	replicas := seen.Replicas
	if k.sync.due(now) && k.known {
		// Such a metric is divided by all pods, whether they are ready or not.
		replicas = k.desired(now, k.polled, seen.Replicas, seen.Replicas)
	}
	if k.poll.due(now) {
		k.polled, k.known = k.asked.take(), true
	}
	return replicas
}
