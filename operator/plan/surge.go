// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
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

// SurgeFloors are the current floors of a Site's pools.
func SurgeFloors(site *v1alpha1.Site) []v1alpha1.SurgeFloorStatus {
	if site == nil || site.Status.Surge == nil {
		return nil
	}
	return site.Status.Surge.Floors
}

// SurgeFloor is how many pods a pool of a Site has at least, according to the Site's status, and which level raised that; 0: there is no
// floor. If one process runs the whole Site, there is none.
func SurgeFloor(site *v1alpha1.Site, kind v1alpha1.SurgePoolKind, pool metav1.Object) (replicas int32, level string) {
	if finding.IsStandalone(pool) {
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

// FloorsWithoutPool returns the pools that floors of a Site's levels name and that the Site does not have, each once: FeedServer/name.
func FloorsWithoutPool(site *v1alpha1.Site, gateways []v1alpha1.IngestGateway, servers []v1alpha1.FeedServer) (all []string) {
	pools := map[string]bool{}
	for i := range gateways {
		pools[string(v1alpha1.SurgePoolIngestGateway)+"/"+gateways[i].Name] = true
	}
	for i := range servers {
		pools[string(v1alpha1.SurgePoolFeedServer)+"/"+servers[i].Name] = true
	}
	for _, l := range site.Spec.Surge.Levels {
		for _, f := range l.Floors {
			if pool := string(f.Kind) + "/" + f.Name; f.Name != "" && !pools[pool] && !slices.Contains(all, pool) {
				all = append(all, pool)
			}
		}
	}
	return all
}

// floorWithoutPool: a floor names a pool that does not exist. If one process runs the whole Site, floors raise nothing anyway.
func (v SiteView) floorWithoutPool() (finding.Finding, bool) {
	pools := FloorsWithoutPool(v.Site, v.Gateways, v.FeedServers)
	if len(pools) == 0 || finding.IsStandalone(v.Site) {
		return finding.Finding{}, false
	}
	return finding.Good(v1alpha1.ReasonPoolNotFound, fmt.Sprintf("floors of spec.surge.levels name %s, and the Site has no such pool: correct the name, or declare the pool; "+
		"until then such a floor raises nothing",
		strings.Join(pools, ", "))), true
}
