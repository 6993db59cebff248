// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"math"
	"time"
)

// Config is how the loop behaves. The names are those of Knative's config-autoscaler.
type Config struct {
	// StableWindow and PanicWindow are over which times loads are averaged.
	StableWindow, PanicWindow time.Duration
	// GrowthLasts is for how many seconds in a row a load has to be there until the panic window takes all of it: its average has the
	// whole of a growth only after PanicWindow. 0: the average alone counts, as for Knative.
	GrowthLasts int
	// PanicThreshold is how many times the pods that there are the panic window has to ask for.
	PanicThreshold float64
	// PanicUtilization is how full the pods that there are have to be in the panic window for the same; 0: that makes no panic. Knative has
	// no such setting: there, pods at their target have space for twice the requests, and here one at 0.7 is full at 1.4 times.
	PanicUtilization float64
	// TargetUtilization is how full pods are to be.
	TargetUtilization float64
	// Tolerance is by which share pods may be fuller than that before the stable window asks for more, so that noise does not. It is
	// HorizontalPodAutoscaler's; Knative has none.
	Tolerance float64
	// ScaleUpDelay is for how long the stable window has to ask for more before pods are added, so that one minute that is fuller by
	// chance adds none. The panic window does not wait.
	ScaleUpDelay time.Duration
	// MaxScaleUpRate and MaxScaleDownRate bound one decision, in times of the pods that are ready: 1000 times as many, half as many.
	MaxScaleUpRate, MaxScaleDownRate float64
	// ScaleDownDelay is for how long less has to be asked for before pods are removed.
	ScaleDownDelay time.Duration
	// StartTime is for how long pods that were asked for do not count as there, even if they are ready because a floor had started them
	// before: so the loop asks for more as soon as if there were no floor. 0: pods that are ready count, as for Knative.
	StartTime time.Duration
}

// Defaults are Knative's, except GrowthLasts, PanicUtilization, ScaleUpDelay, StartTime, and the tolerance and ScaleDownDelay, which are
// HorizontalPodAutoscaler's: a pod that is needed again takes a while to start, and a gateway's has a spool to drain before it may go.
// ScaleUpDelay is as long as the stable window, so that two averages that hardly overlap agree.
var Defaults = Config{
	StableWindow: time.Minute, PanicWindow: 6 * time.Second, GrowthLasts: 3, PanicThreshold: 2, PanicUtilization: 0.9, TargetUtilization: 0.7, Tolerance: 0.1,
	ScaleUpDelay: time.Minute, MaxScaleUpRate: 1000, MaxScaleDownRate: 2, ScaleDownDelay: 5 * time.Minute, StartTime: 40 * time.Second,
}

// Loop asks for pods. It is of one pool, and of one goroutine.
type Loop struct {
	cfg   Config
	loads window
	// began is when it did.
	began time.Time
	// panicSince is when the panic window last asked for enough pods for a panic; zero: it is over. panicMax is the greatest request since
	// it began.
	panicSince time.Time
	panicMax   int32
	// recent are decisions of the last ScaleDownDelay that none after them exceeds: the first one is the greatest. starting are those
	// of the last StartTime that none after them falls below: the first one is the least. So are rising, of what the stable window
	// asked for in the last ScaleUpDelay.
	recent, starting, rising []decision
	asked                    Asked
}

type decision struct {
	at       time.Time
	replicas int32
}

// note adds a decision to those since a time, and drops what a later one makes irrelevant.
func note(all []decision, one decision, since time.Time, irrelevant func(before int32) bool) []decision {
	for len(all) > 0 && !all[0].at.After(since) {
		all = all[1:]
	}
	for n := len(all); n > 0 && irrelevant(all[n-1].replicas); n-- {
		all = all[:n-1]
	}
	return append(all, one)
}

// Asked is for how many pods a loop asks.
type Asked struct {
	Replicas int32
	// Panic says that the panic window decides.
	Panic bool
	// Load is the one of the window that decided, in pods.
	Load float64
	// Held says why more are asked for than the load needs; empty: they are not.
	Held string
	// because is the budget that decided, and window the time that did.
	because Budget
	window  time.Duration
	target  float64
}

// Why explains it in a sentence for people. It is made only on request: the simulation decides millions of times.
func (a Asked) Why() string {
	if a.because == "" {
		return "no pod has reported yet"
	}
	text := fmt.Sprintf("in %.0f s the load was that of %.1f full pods (%s), at most %.0f%% of each", a.window.Seconds(), a.Load, a.because, 100*a.target)
	if a.Held != "" {
		text += "; " + a.Held
	}
	return text
}

// New begins with the pods that there are. It removes none of them before it knows a whole stable window and ScaleDownDelay: it
// begins in panic.
func New(cfg Config, replicas int32, now time.Time) *Loop {
	l := &Loop{cfg: cfg, began: now, panicSince: now, panicMax: replicas, asked: Asked{Replicas: replicas, Panic: true, target: cfg.TargetUtilization}}
	l.wait(now)
	return l
}

// wait restarts both delays, with the number that was requested last.
func (l *Loop) wait(now time.Time) {
	last := decision{now, l.asked.Replicas}
	l.recent, l.rising = []decision{last}, []decision{last}
}

// Add notes the load of a second. Times that do not go forward are left out.
func (l *Loop) Add(load Load) {
	if n := len(l.loads); n > 0 && !load.At.After(l.loads[n-1].At) {
		return
	}
	if kept := l.loads.since(load.At.Add(-l.cfg.StableWindow)); len(kept) < len(l.loads) {
		// Half of the array is garbage at most: append copies the part that is kept when it is full.
		l.loads = kept
	}
	l.loads = append(l.loads, load)
}

// Decide returns how many pods are requested. Ready is how many pods are ready now. Without a load in the panic window it repeats the last
// request.
func (l *Loop) Decide(now time.Time, ready int32) Asked {
	stable := l.loads.since(now.Add(-l.cfg.StableWindow))
	hasty := stable.since(now.Add(-l.cfg.PanicWindow))
	if len(hasty) == 0 {
		l.asked.Held = "no pod reports"
		l.wait(now) // until something is known again
		return l.asked
	}
	own := max(1, ready) // pods that count as there
	if l.cfg.StartTime > 0 {
		l.starting = note(l.starting, decision{now, l.asked.Replicas}, now.Add(-l.cfg.StartTime), func(n int32) bool { return n >= l.asked.Replicas })
		own = max(1, min(ready, l.starting[0].replicas))
	}
	calm, panicky, window := stable.mean(), hasty.mean(), l.cfg.PanicWindow
	if lasting := hasty.lasting(l.cfg.GrowthLasts); lasting > panicky {
		panicky, window = lasting, time.Duration(l.cfg.GrowthLasts)*time.Second
	}
	most, least := math.Ceil(l.cfg.MaxScaleUpRate*float64(own)), math.Floor(float64(own)/l.cfg.MaxScaleDownRate)
	wanted := l.steady(now, calm, least, most)
	asked := Asked{Replicas: wanted, Load: calm, window: l.cfg.StableWindow, because: hasty[len(hasty)-1].Because, target: l.cfg.TargetUtilization}

	urgent := l.pods(panicky, least, most)
	if asked.Panic = l.panics(now, panicky, float64(own)); asked.Panic {
		if urgent > wanted {
			asked.Replicas, asked.Load, asked.window = urgent, panicky, window
		}
		l.panicMax = max(l.panicMax, asked.Replicas)
		if asked.Replicas < l.panicMax {
			asked.Replicas, asked.Held = l.panicMax, "less than a minute ago it grew fast"
			if l.panicSince.Equal(l.began) {
				asked.Held = "the load of the last minute is not known yet"
			}
		}
	}
	l.hold(&asked, stable, now)
	l.asked = asked
	return asked
}

// pods that a load needs.
func (l *Loop) pods(load, least, most float64) int32 {
	n := min(max(math.Ceil(load/l.cfg.TargetUtilization-1e-9), least), most)
	return int32(min(max(1, n), math.MaxInt32))
}

// steady is how many pods the stable window asks for. More than before are the least of what its load needed in the last ScaleUpDelay.
// Pods that were asked for and are not ready yet count: their part of the load is still on the others.
func (l *Loop) steady(now time.Time, load, least, most float64) int32 {
	before := l.asked.Replicas
	wanted := l.pods(load, least, most)
	if wanted > before && load <= float64(before)*l.cfg.TargetUtilization*(1+l.cfg.Tolerance) {
		wanted = before
	}
	l.rising = note(l.rising, decision{now, wanted}, now.Add(-l.cfg.ScaleUpDelay), func(n int32) bool { return n >= wanted })
	return min(wanted, max(before, l.rising[0].replicas))
}

// panics says whether the panic window decides: while its load asks for so many times the pods that there are, or fills them, and for
// a stable window after.
func (l *Loop) panics(now time.Time, load, pods float64) bool {
	times, fill := math.Ceil(load/l.cfg.TargetUtilization)/pods, load/pods
	switch {
	case times >= l.cfg.PanicThreshold, l.cfg.PanicUtilization > 0 && fill >= l.cfg.PanicUtilization:
		if l.panicSince.IsZero() {
			l.panicMax = 0
		}
		l.panicSince = now
	case !l.panicSince.IsZero() && now.Sub(l.panicSince) >= l.cfg.StableWindow:
		l.panicSince = time.Time{}
	}
	return !l.panicSince.IsZero()
}

// hold keeps pods that would be removed, where the load is not known in full, or was higher a while ago.
func (l *Loop) hold(asked *Asked, stable window, now time.Time) {
	for i := len(stable) - 1; i >= 0 && asked.Replicas < l.asked.Replicas; i-- {
		if stable[i].Missing > 0 {
			asked.Replicas, asked.Held = l.asked.Replicas, stable[i].missing()+", and what is not known removes none"
		}
	}
	l.recent = note(l.recent, decision{now, asked.Replicas}, now.Add(-l.cfg.ScaleDownDelay), func(n int32) bool { return n <= asked.Replicas })
	if first := l.recent[0]; first.replicas > asked.Replicas {
		asked.Replicas, asked.Held = first.replicas, "less is needed, but not for long yet"
	}
}
