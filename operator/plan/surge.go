// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/surge"
)

// SurgeLevels are the levels that a Site declares; none where it declares none.
func SurgeLevels(site *v1alpha1.Site) (levels []surge.Level) {
	spec := &site.Spec.Surge
	for _, l := range spec.Levels {
		level := surge.Level{Name: l.Name, Hold: durationOf(spec.Hold, v1alpha1.DefaultSurgeHold), ReleaseEvery: durationOf(spec.ReleaseInterval, v1alpha1.DefaultSurgeReleaseInterval)}
		for _, rule := range l.AnyOf {
			var all surge.Rule
			for _, t := range rule.AllOf {
				all = append(all, surge.Threshold{Quantity: surge.Quantity(t.Quantity), AtLeast: decimal(t.AtLeast), AtMost: decimal(t.AtMost), For: durationOf(t.For, 0)})
			}
			level.AnyOf = append(level.AnyOf, all)
		}
		for _, f := range l.Floors {
			level.Floors = append(level.Floors, surge.Floor{Kind: string(f.Kind), Name: f.Name, Replicas: f.Replicas})
		}
		levels = append(levels, level)
	}
	return levels
}

// decimal is the value of a decimal string that the API server took; nil of an empty one.
func decimal(text string) *float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return &v
}

func durationOf(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// SurgeFloors are those of a Site's pools now.
func SurgeFloors(site *v1alpha1.Site) []v1alpha1.SurgeFloorStatus {
	if site == nil || site.Status.Surge == nil {
		return nil
	}
	return site.Status.Surge.Floors
}

// SurgeFloor is how many pods a pool of a Site has at least, as the Site's status says, and which level raised that; 0: there is no
// floor. Where one process runs the whole Site there is none.
func SurgeFloor(site *v1alpha1.Site, kind v1alpha1.SurgePoolKind, pool metav1.Object) (replicas int32, level string) {
	if standalone(pool) {
		return 0, ""
	}
	for _, f := range SurgeFloors(site) {
		if f.Kind == kind && (f.Name == pool.GetName() || f.Name == "" && level == "") {
			replicas, level = f.Replicas, f.Level
			if f.Name != "" {
				break
			}
		}
	}
	return replicas, level
}
