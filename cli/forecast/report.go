// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/autoscale"
	"github.com/substorm/substorm/operator/surge/ceiling"
)

// Report says what a storm would need.
type Report struct {
	Site      string `json:"site"`
	Namespace string `json:"namespace"`
	// Level that would hold; empty: none would. Why says why.
	Level string `json:"level"`
	Why   string `json:"why"`
	// Pools in the order in which they were counted.
	Pools []Pool `json:"pools"`
	// UnknownPools have a floor in a level, and the Site does not have them: FeedServer/name.
	UnknownPools []string `json:"unknownPools,omitempty"`
	// Unread says who may not read nodes; empty: they were read.
	Unread string `json:"unread,omitempty"`
	// Fits says whether all Pools fit. It does not cover UnknownPools.
	Fits bool `json:"fits"`
}

// Pool is what a pool would need.
type Pool struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Asked, Floor and Ceiling are those of status.autoscaling, in the storm.
	Asked   autoscale.Count `json:"asked"`
	Floor   autoscale.Count `json:"floor"`
	Ceiling autoscale.Count `json:"ceiling"`
	// Needs is how many pods there should be, and Missing how many of them there could not.
	Needs   int32 `json:"needs"`
	Missing int32 `json:"missing"`
	Fits    bool  `json:"fits"`
}

// report decides with the operator's code.
func (s *seen) report(asked storm, now time.Time) (*Report, error) {
	levels := s.site.Spec.Surge.Levels
	if len(levels) == 0 {
		return nil, fmt.Errorf("Site %q declares no levels: set spec.surge.levels (docs/how-to/storms.md)", s.site.Name)
	}
	site := s.site.DeepCopy()
	site.Status.Surge = plan.ForecastSurge(site, asked.signals(now), now)
	if asked.level != "" {
		status, known := plan.ForecastLevel(site, asked.level, now)
		if !known {
			var names []string
			for _, l := range levels {
				names = append(names, l.Name)
			}
			return nil, fmt.Errorf("Site %q has no level %q: it has %s", site.Name, asked.level, strings.Join(names, ", "))
		}
		site.Status.Surge = status
	}
	r := &Report{Site: site.Name, Namespace: site.Namespace, Level: site.Status.Surge.Level, Why: site.Status.Surge.Message, Unread: s.space.Unread, Fits: true, Pools: []Pool{}}
	if asked.level != "" {
		r.Why = "asked for with --level"
	} else {
		r.Why = asked.why(r.Level, r.Why, plan.SurgeLevels(site))
	}
	space := s.space
	for i := range s.gateways {
		view := plan.GatewayView{Now: now, Gateway: &s.gateways[i], Site: site, StatefulSet: s.set(s.gateways[i].Name)}
		pool := view.SpacePool()
		view.StatefulSet, view.Scaling.Ceiling = nil, new(space.Fit(pool, plan.MaxPods)) // what there is already is not enough if it has no node
		space = r.add("IngestGateway", s.gateways[i].Name, view.Scale(), space, pool)
	}
	for i := range s.servers {
		view := plan.FeedServerView{Now: now, Server: &s.servers[i], Site: site}
		pool := view.SpacePool()
		view.Scaling.Ceiling = new(space.Fit(pool, plan.MaxPods))
		space = r.add("FeedServer", s.servers[i].Name, view.Scale(), space, pool)
	}
	r.UnknownPools = plan.FloorsWithoutPool(site, s.gateways, s.servers)
	return r, nil
}

// signals of what would be measured: all day long, so that levels hold that ask for it to last.
func (s storm) signals(now time.Time) (all surge.Signals) {
	for _, q := range surge.Quantities {
		if value, told := s.told[q]; told {
			all = append(all, &surge.Signal{Quantity: q, Source: "asked", StaleAfter: time.Hour, Samples: []surge.Sample{{From: now.Add(-24 * time.Hour), To: now, Value: value}}})
		}
	}
	return all
}

// measure is a quantity as people tell it.
type measure struct {
	quantity   surge.Quantity
	flag, unit string
}

var measures = []measure{{surge.Kp, "--kp", ""}, {surge.Bz, "--bz", " nT"}, {surge.Speed, "--speed", " km/s"}}

// why is why the level is the one that it is, and which other quantities levels ask for: one that was not given has no source that could be
// silent. At the highest level the others change nothing.
func (s storm) why(level, why string, levels []surge.Level) string {
	var given, missing, flags []string
	asked := surge.Asked(levels)
	for _, m := range measures {
		if value, known := s.told[m.quantity]; known {
			given = append(given, fmt.Sprintf("%s %g%s", m.quantity, value, m.unit))
		} else if slices.Contains(asked, m.quantity) {
			missing, flags = append(missing, string(m.quantity)), append(flags, m.flag)
		}
	}
	switch {
	case len(missing) == 0 || level == levels[len(levels)-1].Name:
		return why
	case level == "":
		why = "no level is fulfilled by " + strings.Join(given, " and ")
	}
	return fmt.Sprintf("%s; levels also ask for %s, which you did not give: add %s", why, strings.Join(missing, " and "), strings.Join(flags, " and "))
}

func (s *seen) set(name string) *appsv1.StatefulSet {
	if i := slices.IndexFunc(s.sets, func(set appsv1.StatefulSet) bool { return set.Name == name }); i >= 0 {
		return &s.sets[i]
	}
	return nil
}

// add adds a pool, and returns the space that it leaves.
func (r *Report) add(kind, name string, scale autoscale.Scale, space *ceiling.Space, pool *ceiling.Pool) *ceiling.Space {
	p := Pool{Kind: kind, Name: name, Asked: scale.Asked, Floor: scale.Floor, Ceiling: scale.Ceiling, Needs: max(scale.Asked.Replicas, scale.Floor.Replicas)}
	p.Missing = max(0, p.Needs-p.Ceiling.Replicas)
	p.Fits = p.Missing == 0
	r.Fits = r.Fits && p.Fits
	r.Pools = append(r.Pools, p)
	return space.With(pool, p.Needs-p.Missing)
}

func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "Site %s/%s, level %s: %s\n\n", r.Namespace, r.Site, cmp.Or(r.Level, "none"), r.Why)
	table := output.Columns(w, "POOL\tASKED\tFLOOR\tNEEDS\tCEILING\tFITS\tMISSING")
	for _, p := range r.Pools {
		fmt.Fprintf(table, "%s/%s\t%d\t%d\t%d\t%d\t%s\t%d\n", p.Kind, p.Name, p.Asked.Replicas, p.Floor.Replicas, p.Needs, p.Ceiling.Replicas, output.Bool(p.Fits), p.Missing)
	}
	_ = table.Flush()
	for _, p := range r.Pools {
		if !p.Fits {
			fmt.Fprintf(w, "\n%s/%s can have %d of %d pods: %s\n", p.Kind, p.Name, p.Ceiling.Replicas, p.Needs, p.Ceiling.Why)
		}
	}
	if len(r.UnknownPools) > 0 {
		fmt.Fprintf(w, "\nspec.surge.levels has floors of %s, and Site %q has no such pool: correct the name, or declare the pool\n", strings.Join(r.UnknownPools, ", "), r.Site)
	}
	if r.Unread != "" {
		fmt.Fprintf(w, "\nNodes and volumes were not looked at: %s\n", r.Unread)
	}
}

// verdict is an error where something does not fit, and where a floor names a pool that is not there.
func (r *Report) verdict() error {
	var fits, known error
	if !r.Fits {
		var pools []string
		for _, p := range r.Pools {
			switch p.Missing {
			case 0:
			case 1:
				pools = append(pools, fmt.Sprintf("%s %s lacks 1 pod", p.Kind, p.Name))
			default:
				pools = append(pools, fmt.Sprintf("%s %s lacks %d pods", p.Kind, p.Name, p.Missing))
			}
		}
		fits = fmt.Errorf("%w: %s", ErrDoesNotFit, strings.Join(pools, ", "))
	}
	if len(r.UnknownPools) > 0 {
		known = fmt.Errorf("%w: Site %q has no %s", ErrNoSuchPool, r.Site, strings.Join(r.UnknownPools, ", "))
	}
	switch {
	case fits != nil && known != nil:
		return fmt.Errorf("%w; %w", fits, known)
	case fits != nil:
		return fits
	}
	return known
}
