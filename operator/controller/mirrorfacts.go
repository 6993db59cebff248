// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
)

type mirrorJudgement struct {
	uid        types.UID
	generation int64
	verdict    accept.MirrorVerdict
}

// judgeMirrors takes all verdicts, and returns the names of those that are new or gone.
func (f *facts) judgeMirrors(in entries.Input) []string {
	next := make(map[string]mirrorJudgement, len(in.Mirrors))
	for i := range in.Mirrors {
		m := &in.Mirrors[i]
		next[m.Name] = mirrorJudgement{m.UID, m.Generation, in.MirrorsAre[m.Name]}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	names := differingKeys(f.mirrors, next)
	f.mirrors = next
	maps.DeleteFunc(f.mirrored, func(name string, _ v1alpha1.MirrorPartnerStatus) bool { _, stays := next[name]; return !stays })
	return names
}

// readMirror fills in the known facts about a MirrorPartner; false if this generation was not judged yet.
func (f *facts) readMirror(view *plan.MirrorView) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := view.Mirror.Name
	j, judged := f.mirrors[name]
	view.Verdict, view.Bus = j.verdict, f.bus
	if entry, exists := f.registry.Mirrors[name]; exists {
		view.Entry = &entry
	}
	return judged && j.uid == view.Mirror.UID && j.generation == view.Mirror.Generation
}

// setMirror stores a status as it is planned now.
func (f *facts) setMirror(name string, status v1alpha1.MirrorPartnerStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, stays := f.mirrors[name]; !stays {
		return
	}
	if f.mirrored == nil {
		f.mirrored = map[string]v1alpha1.MirrorPartnerStatus{}
	}
	f.mirrored[name] = status
}

// mirrorStatuses are the statuses that were planned last. They must not be changed.
func (f *facts) mirrorStatuses() map[string]v1alpha1.MirrorPartnerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.mirrored)
}

// mirrorNames are the MirrorPartners that were judged.
func (f *facts) mirrorNames() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sortedKeys(f.mirrors)
}

// takeMirror stores a run's report; false if it is not one.
func (r *reports) takeMirror(key string, value []byte, seen time.Time) bool {
	partner, run, ok := wire.ParseMirrorStatusKey(key)
	if !ok {
		return false
	}
	status, err := wire.Decode[wire.MirrorStatus](value)
	if status.Run = run; err == nil {
		err = plan.MirrorReportProblem(status)
	}
	if err != nil {
		r.log.Warn("the report of a mirror cannot be read", "key", key, "error", err)
		return true
	}
	r.mu.Lock()
	if r.mirrors[partner] == nil {
		r.mirrors[partner] = map[string]plan.MirrorReport{}
	}
	r.mirrors[partner][run] = plan.MirrorReport{MirrorStatus: status, Seen: seen}
	r.mu.Unlock()
	r.mirrorChanged(partner)
	return true
}

// forgetMirror: the report of a run is gone.
func (r *reports) forgetMirror(key string) {
	partner, run, ok := wire.ParseMirrorStatusKey(key)
	if !ok {
		return
	}
	r.mu.Lock()
	delete(r.mirrors[partner], run)
	if len(r.mirrors[partner]) == 0 {
		delete(r.mirrors, partner)
	}
	r.mu.Unlock()
	r.mirrorChanged(partner)
}

// ofMirror returns the last reports of the runs of a MirrorPartner.
func (r *reports) ofMirror(partner string) (all []plan.MirrorReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range sortedKeys(r.mirrors[partner]) {
		all = append(all, r.mirrors[partner][run])
	}
	return all
}

// staleMirrors are the keys of outdated reports: of runs before the last ones, and of MirrorPartners that are gone. The caller holds the
// lock.
func (r *reports) staleMirrors(mirrors []string, now time.Time) (keys []string) {
	for partner, runs := range r.mirrors {
		var reports []plan.MirrorReport
		for _, run := range sortedKeys(runs) {
			reports = append(reports, runs[run])
			if !slices.Contains(mirrors, partner) {
				keys = append(keys, wire.MirrorStatusKey(partner, run))
			}
		}
		if !slices.Contains(mirrors, partner) {
			continue
		}
		for _, run := range plan.MirrorReportsToForget(reports, nil, now) {
			keys = append(keys, wire.MirrorStatusKey(partner, run))
		}
	}
	return keys
}
