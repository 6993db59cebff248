// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// facts are the operator's knowledge about one Site beside the API server's objects: all of it can be determined again after a restart.
type facts struct {
	reports *reports

	mu       sync.Mutex
	backends plan.Backends
	bus      observed.Bus
	registry observed.RegistryState
	// newest is the newest revision that was ever seen.
	newest int64
	// complete is the marker in the registry's bucket; nil if the bucket has none.
	complete *wire.RegistryComplete
	verdicts map[string]judgement
	judged   bool
	// replicated are the Instruments that keep pods of pools on nodes of their own.
	replicated replicated
	// states of the Site's instruments as last planned.
	states map[string]instrumentState
	// waiting are, by kind and name, resources that wait for gateways or feed servers to
	// follow the registry.
	waiting map[string]map[string]bool

	// unreadable are the Site's objects that cannot be decoded.
	unreadable []entries.UnreadableObject

	feeds feedFacts
	// mirrors are the verdicts on MirrorPartners.
	mirrors map[string]mirrorJudgement
	// mirrored are the statuses of MirrorPartners as they were planned last.
	mirrored map[string]v1alpha1.MirrorPartnerStatus
	// begun is when this operator began to look after the Site.
	begun time.Time
}

// judgement is a verdict, and which generation of the Instrument it is about.
type judgement struct {
	uid        types.UID
	generation int64
	verdict    accept.Verdict
	// apart is the pool whose pods the Instrument keeps on nodes of their own.
	apart string
}

func newJudgement(inst *v1alpha1.Instrument, verdict accept.Verdict) judgement {
	return judgement{inst.UID, inst.Generation, verdict, plan.ReplicatedOn(inst, verdict)}
}

type instrumentState struct{ flowing finding.Finding }

func newFacts(now time.Time, log *slog.Logger) *facts {
	return &facts{
		reports:    newReports(log),
		bus:        observed.Bus{Since: now},
		begun:      now,
		registry:   emptyRegistry(),
		verdicts:   map[string]judgement{},
		states:     map[string]instrumentState{},
		waiting:    map[string]map[string]bool{},
		replicated: replicated{names: map[string]map[string]bool{}},
		feeds:      newFeedFacts(),
	}
}

// setUnreadable stores which objects cannot be decoded, and says whether that is new.
func (f *facts) setUnreadable(all []entries.UnreadableObject) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(f.unreadable, all) {
		return false
	}
	f.unreadable = all
	return true
}

func (f *facts) unreadableObjects() []entries.UnreadableObject {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unreadable
}

// judge takes the verdicts on all of the Site's instruments, forgets those
// that are gone, and returns the names of those whose verdict is new.
func (f *facts) judge(instruments []v1alpha1.Instrument, verdicts map[string]accept.Verdict) (changed []string, gone bool) {
	next := make(map[string]judgement, len(instruments))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range instruments {
		inst := &instruments[i]
		j := newJudgement(inst, verdicts[inst.Name])
		if !reflect.DeepEqual(f.verdicts[inst.Name], j) {
			changed = append(changed, inst.Name)
		}
		next[inst.Name] = j
	}
	f.verdicts, f.judged = next, true
	f.replicated.names = map[string]map[string]bool{}
	for name, j := range next {
		f.replicated.move(name, "", j.apart)
	}
	for name := range f.states {
		if _, exists := next[name]; !exists {
			delete(f.states, name)
			delete(f.waiting[kindInstrument], name)
			gone = true
		}
	}
	return changed, gone
}

// judgements are all verdicts as they are now.
func (f *facts) judgements() map[string]judgement {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.verdicts)
}

// judgeSome takes the verdicts on some of the Site's instruments, which exist, and returns
// the names of those whose verdict is new.
func (f *facts) judgeSome(instruments []v1alpha1.Instrument, verdicts map[string]accept.Verdict) (changed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range instruments {
		inst := &instruments[i]
		j := newJudgement(inst, verdicts[inst.Name])
		if was := f.verdicts[inst.Name]; !reflect.DeepEqual(was, j) {
			f.replicated.move(inst.Name, was.apart, j.apart)
			f.verdicts[inst.Name] = j
			changed = append(changed, inst.Name)
		}
	}
	return changed
}

// verdict returns the verdict on this generation of an Instrument, and its current entry in the registry.
func (f *facts) verdict(inst *v1alpha1.Instrument) (accept.Verdict, *wire.InstrumentEntry, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.verdicts[inst.Name]
	if j.uid != inst.UID || j.generation != inst.Generation {
		return accept.Verdict{}, nil, false
	}
	if entry, exists := f.registry.Entries[inst.Name]; exists {
		return j.verdict, &entry, true
	}
	return j.verdict, nil, true
}

// setState stores an instrument's state, and returns whether that changes the Site's status: it shows the states of all of its instruments
// or, until all are known, what it showed before.
func (f *facts) setState(instrument string, s instrumentState) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, exists := f.verdicts[instrument]; !exists {
		return false // it was deleted meanwhile
	}
	was, known := f.states[instrument]
	f.states[instrument] = s
	return f.counted() && (!known || was.flowing.Status != s.flowing.Status || was.flowing.Reason != s.flowing.Reason)
}

// counted says whether the state of no instrument is missing. The caller has f.mu.
func (f *facts) counted() bool { return f.judged && len(f.states) == len(f.verdicts) }

// isFlowing says whether data of an instrument was flowing when last planned.
func (f *facts) isFlowing(instrument string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states[instrument].flowing.OK()
}

// settle notes whether gateways, or feed servers, run the declared state of a resource.
func (f *facts) settle(kind, name string, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if settled {
		delete(f.waiting[kind], name)
		return
	}
	if f.waiting[kind] == nil {
		f.waiting[kind] = map[string]bool{}
	}
	f.waiting[kind][name] = true
}

// unsettled returns the names of the resources of a kind that wait for gateways, or feed
// servers, to follow the registry.
func (f *facts) unsettled(kind string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.waiting[kind]))
}

// receivedBy returns the instruments that a pool receives for; all of them, or
// those that wait for gateways to follow.
func (f *facts) receivedBy(pool string, onlyUnsettled bool) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	add := func(name string) {
		j := f.verdicts[name]
		if j.verdict.Gateway == pool || j.verdict.Gateway == "" && f.registry.Entries[name].Gateway == pool {
			names = append(names, name)
		}
	}
	if onlyUnsettled {
		for name := range f.waiting[kindInstrument] {
			add(name)
		}
		return names
	}
	for name := range f.verdicts {
		add(name)
	}
	return names
}

// flowing returns the DataFlowing of every instrument, and whether none is missing.
func (f *facts) flowing() (all map[string]finding.Finding, counted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all = make(map[string]finding.Finding, len(f.states))
	for name, s := range f.states {
		all[name] = s.flowing
	}
	return all, f.counted()
}

func (f *facts) instruments() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.verdicts))
}

// setBackend stores the finding of a try of a backend and returns whether it is new.
func (f *facts) setBackend(which func(*plan.Backends) **finding.Finding, found *finding.Finding) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := which(&f.backends)
	was := *at
	*at = found
	return (was == nil) != (found == nil) || was != nil && *was != *found
}

// setRecreated notes that a stream was deleted from outside and recreated.
func (f *facts) setRecreated(name string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Readers that hold earlier facts keep reading the map that they got.
	f.backends.Recreated = maps.Clone(f.backends.Recreated)
	if f.backends.Recreated == nil {
		f.backends.Recreated = map[string]time.Time{}
	}
	f.backends.Recreated[name] = at
}

// setStanding notes which streams exist, and returns whether that is new.
func (f *facts) setStanding(names []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.backends.Standing
	f.backends.Standing = names
	return !slices.Equal(was, names)
}

func theObjectStore(b *plan.Backends) **finding.Finding   { return &b.ObjectStore }
func theJetStream(b *plan.Backends) **finding.Finding     { return &b.JetStream }
func theLeavesAccount(b *plan.Backends) **finding.Finding { return &b.LeavesAccount }

// setBus says whether reports are read, and returns whether that is new.
func (f *facts) setBus(up bool, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bus.Up == up {
		return false
	}
	f.bus = observed.Bus{Up: up, Since: now}
	f.feeds.swept = swept{}
	return true
}

// setRegistry stores the current content of the registry.
func (f *facts) setRegistry(state observed.RegistryState, complete *wire.RegistryComplete, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry, f.registry.Revision, f.registry.WrittenAt = state, 0, now
	f.complete = complete
	if complete != nil {
		f.registry.Revision = complete.Revision
		f.newest = max(f.newest, complete.Revision)
	}
}

// changeRegistry stores a change that was written. The maps are changed in place: all except the one controller that writes the registry
// read them under the lock.
func (f *facts) changeRegistry(change entries.Change, now time.Time) {
	f.mu.Lock()
	is := f.registry
	applyEntries(is.Entries, change.Put, change.Delete, func(e wire.InstrumentEntry) string { return e.Instrument })
	applyEntries(is.Feeds, change.PutFeeds, change.DeleteFeeds, func(e wire.FeedEntry) string { return e.Feed })
	applyEntries(is.Consumers, change.PutConsumers, change.DeleteConsumers, func(e wire.ConsumerEntry) string { return e.Consumer })
	applyEntries(is.Readers, change.PutReaders, change.DeleteReaders, func(e wire.ReaderEntry) string { return e.Reader })
	applyEntries(is.Mirrors, change.PutMirrors, change.DeleteMirrors, func(e wire.MirrorEntry) string { return e.Partner })
	applyEntries(is.Closed, change.PutClosed, change.DeleteClosed, func(e wire.ClosedEntry) string { return e.Instrument })
	f.mu.Unlock()
	f.setRegistry(is, change.Complete, now)
}

func applyEntries[E any](entries map[string]E, put []E, del []string, name func(E) string) {
	for _, e := range put {
		entries[name(e)] = e
	}
	for _, gone := range del {
		delete(entries, gone)
	}
}

// newestRevision is the newest registry revision that was ever seen here.
func (f *facts) newestRevision() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

// snapshot returns the input of the planners.
func (f *facts) snapshot() (plan.Backends, observed.Bus, observed.RegistryState, *wire.RegistryComplete) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.backends, f.bus, f.registry, f.complete
}
