// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// Replicas is how many pods there should be: the requested number, within floor and ceiling, and up to the highest one whose volume holds
// objects that are receipted and not archived. Removed pods come back for that: their volumes stay.
func (v GatewayView) Replicas() int32 { return v.Scale().Replicas().Replicas }

// Scale returns the inputs to the number of pods.
func (v GatewayView) Scale() autoscale.Scale {
	scale := v.pool().scale()
	if held, reason := v.hold(); reason != "" { // more than there are to be otherwise
		scale.Held = held
	}
	return scale
}

func (v GatewayView) pool() poolScale {
	has := int32(0)
	if v.StatefulSet != nil {
		has = *workload.ReplicasOf(v.StatefulSet.Spec.Replicas)
	}
	return poolScale{v1alpha1.SurgePoolIngestGateway, v.Gateway, v.Site, GatewayReplicas(v.Gateway), MaxGateways, &v.Gateway.Spec.Autoscaling, has, v.Scaling}
}

// wanted is how many pods there are to be once no spool holds any.
func (v GatewayView) wanted() int32 { return v.pool().scale().Replicas().Replicas }

// hold returns how many pods have to stay that there are not to be, and the reason of
// that; empty: none has to.
func (v GatewayView) hold() (held autoscale.Count, reason string) {
	asked := v.wanted()
	if v.StatefulSet != nil && !v.Bus.Up {
		if current := *workload.ReplicasOf(v.StatefulSet.Spec.Replicas); current > asked {
			return autoscale.Count{Replicas: current, Why: fmt.Sprintf("the operator does not reach JetStream, "+
				"so it does not know what their spools hold; see the conditions of Site %q", v.Gateway.Spec.SiteRef.Name)}, v1alpha1.ReasonSpoolUnknown
		}
	}
	var notes []string
	found := v1alpha1.ReasonSpoolUnknown
	for _, r := range v.reports() {
		n, ok := ordinal(v.Gateway.Name, r.Gateway)
		if !ok || n < asked || n >= MaxGateways {
			continue
		}
		note, holds := v.reasonToKeep(r)
		if note == "" {
			continue
		}
		if holds {
			found = v1alpha1.ReasonSpoolNotEmpty
		}
		held.Replicas = max(held.Replicas, n+1)
		notes = append(notes, note)
	}
	if held.Replicas == 0 {
		return held, ""
	}
	held.Why = strings.Join(notes, "; ")
	return held, found
}

// reasonToKeep explains why a pod that is not requested stays, or "", and returns whether it is known to hold something.
func (v GatewayView) reasonToKeep(r observed.GatewayReport) (note string, holds bool) {
	switch {
	case HoldsData(&r.GatewayStatus):
		return fmt.Sprintf("%s has %s", r.Gateway, holding(&r.GatewayStatus)), true
	case !r.Stopped && v.Now.Sub(r.Seen) > observed.ReportAge:
		return fmt.Sprintf("%s has not reported since %s, so nobody knows what its spool holds: if it never will, "+
			"give it up with `kubectl substorm spool abandon %s`", r.Gateway, stamp(r.Seen), r.Gateway), false
	default:
		return "", false
	}
}

// HoldsData returns whether a pod's volume has objects that are receipted and not archived.
func HoldsData(s *wire.GatewayStatus) bool {
	return s.Spool != nil && s.Spool.Objects > 0 || len(s.Copies) > 0
}

// holding describes the content of a pod's volume.
func holding(s *wire.GatewayStatus) string {
	var parts []string
	if spool := s.Spool; spool != nil && spool.Objects > 0 {
		part := fmt.Sprintf("%d objects (%s) in its spool", spool.Objects, humanize.IBytes(uint64(spool.Bytes)))
		if spool.Oldest != nil {
			part += ", the oldest received at " + stamp(*spool.Oldest)
		}
		parts = append(parts, part)
	}
	for _, c := range s.Copies {
		parts = append(parts, fmt.Sprintf("copies of %d objects of %s", c.Objects, c.Owner))
	}
	return strings.Join(parts, ", ")
}

// reports are the pool's pods' last reports, whenever that was, by pod.
func (v GatewayView) reports() []observed.GatewayReport {
	mine := slices.DeleteFunc(slices.Clone(v.Reports), func(r observed.GatewayReport) bool { return r.Pool != v.Gateway.Name })
	slices.SortFunc(mine, func(a, b observed.GatewayReport) int {
		m, _ := ordinal(v.Gateway.Name, a.Gateway)
		n, _ := ordinal(v.Gateway.Name, b.Gateway)
		return cmp.Or(cmp.Compare(m, n), cmp.Compare(a.Gateway, b.Gateway))
	})
	return mine
}

// ordinal is the number of a StatefulSet's pod.
func ordinal(pool, pod string) (int32, bool) {
	digits, ok := strings.CutPrefix(pod, pool+"-")
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), ok && err == nil && n >= 0 && digits == strconv.FormatInt(n, 10)
}

func scaleDownIsHeld(v GatewayView) (finding.Finding, bool) {
	held, reason := v.hold()
	if reason == "" {
		return finding.Finding{}, false
	}
	return finding.Good(reason, fmt.Sprintf("%d pods stay, and %d are asked for: %s", held.Replicas, v.wanted(), held.Why)), true
}

// podsAreKept: there are more pods than requested.
func podsAreKept(v GatewayView) (finding.Finding, bool) {
	why, held := scaleDownIsHeld(v)
	return finding.Bad(v1alpha1.ConditionScaleDownHeld, why.Message), held
}

// spoolIsStranded: a pod that held objects has been silent for longer than a restart's report takes. While reports are not read, the
// earlier condition stays.
func spoolIsStranded(v GatewayView) (finding.Finding, bool) {
	if !v.Bus.Up {
		return v.lastFinding(v1alpha1.ConditionSpoolStranded)
	}
	var notes []string
	for _, r := range v.reports() {
		if in, holds := v.strandIn(r); !holds || in > 0 {
			continue
		}
		node := r.Node
		node = cmp.Or(node, "unknown")
		note := fmt.Sprintf("pod %s on node %s has %s, and has not reported since %s", r.Gateway, node,
			holding(&wire.GatewayStatus{Spool: r.Spool}), stamp(r.Seen))
		if kept := v.copiesOf(r.Gateway); kept != "" {
			note += " (" + kept + ")"
		}
		notes = append(notes, note)
	}
	if len(notes) == 0 {
		return finding.Finding{}, false
	}
	return finding.Good(v1alpha1.ReasonPodSilent, strings.Join(notes, "; ")+
		": bring pod and node back, and they drain; what never returns is given up with `kubectl substorm spool abandon POD`"), true
}

// spoolIsQuarantined: volumes of pods have files in quarantine, according to each pod's last report. While reports are not read, the
// earlier condition stays.
func spoolIsQuarantined(v GatewayView) (finding.Finding, bool) {
	if !v.Bus.Up {
		return v.lastFinding(v1alpha1.ConditionSpoolQuarantined)
	}
	var notes []string
	for _, r := range v.reports() {
		if r.Spool != nil && r.Spool.Quarantined > 0 {
			notes = append(notes, fmt.Sprintf("pod %s has %d", r.Gateway, r.Spool.Quarantined))
		}
	}
	if len(notes) == 0 {
		return finding.Finding{}, false
	}
	return finding.Good(v1alpha1.ReasonRecordsKeptApart, "files of data that cannot be archived lie in spool/quarantine of the pods' volumes: "+finding.List(notes)+
		". Each pod's log says why, and names instrument and key: look whether disk and store are sound, copy the files away, remove them, and restart the pod"), true
}

// lastFinding returns a condition that was found before.
func (v GatewayView) lastFinding(kind string) (finding.Finding, bool) {
	was := finding.Condition(v.Gateway.Status.Conditions, kind)
	if was == nil {
		return finding.Finding{}, false
	}
	return finding.From(was), true
}

// strandIn returns after how long of further silence a pod's spool is stranded,
// and false where it is empty.
func (v GatewayView) strandIn(r observed.GatewayReport) (time.Duration, bool) {
	last := r.Seen
	if v.Bus.Since.After(last) {
		last = v.Bus.Since // no report could be read before
	}
	return max(0, last.Add(observed.ReportAge+observed.ReportGrace).Sub(v.Now)), r.Spool != nil && r.Spool.Objects > 0
}

// strandsIn returns when to look again for stranded spools, or 0: after the
// reports of pods that report have aged.
func (v GatewayView) strandsIn() (wait time.Duration) {
	for _, r := range v.reports() {
		if in, holds := v.strandIn(r); holds && in > 0 {
			wait = finding.Soonest(wait, in+time.Second)
		}
	}
	return wait
}

// copiesOf says who keeps copies of a pod's spool, or "".
func (v GatewayView) copiesOf(pod string) string {
	alive, _ := observed.Fresh(v.Reports, v.Gateway.Name, v.Now)
	var kept []string
	for _, r := range alive {
		for _, c := range r.Copies {
			if c.Owner == pod && c.Objects > 0 {
				kept = append(kept, fmt.Sprintf("%s drains copies of %d", r.Gateway, c.Objects))
			}
		}
	}
	slices.Sort(kept)
	return strings.Join(kept, ", ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
