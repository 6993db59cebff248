// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge/spaceweather"
)

// lookAtWeather is how often the sources are checked for news. It costs no request.
const lookAtWeather = time.Second

// weathers ask the sources of space weather that Sites declare, and wake a Site when one of them has news.
type weathers struct {
	wakers *wakers
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	sites map[types.NamespacedName]*weather
	// told are the levels that were sent to feed servers.
	told map[types.NamespacedName]*wire.SurgeLevel
	ctx  context.Context // nil until Start
}

// weather is a Site's declaration, and its pollers.
type weather struct {
	declared *v1alpha1.SpaceWeather
	sources  []*weatherSource
	// set are the pollers of the sources that can be asked, and invalid says of each other why it cannot.
	set     *spaceweather.Set
	invalid []string
	// stop ends the watch that wakes the Site; nil while there is none.
	stop context.CancelFunc
	// surge is the last plan.
	surge *v1alpha1.SurgeStatus
}

// weatherSource is a declared source of a Site: one poller or, if quantities come in separate documents, several.
type weatherSource struct {
	declared v1alpha1.SpaceWeatherSource
	pollers  []*spaceweather.Poller
	// stop ends them; nil while they do not run.
	stop context.CancelFunc
}

func newWeathers(wakers *wakers, log *slog.Logger, now func() time.Time) *weathers {
	return &weathers{wakers: wakers, log: log, now: now, sites: map[types.NamespacedName]*weather{}, told: map[types.NamespacedName]*wire.SurgeLevel{}}
}

// Start implements manager.Runnable: only the leader asks.
func (w *weathers) Start(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for site, of := range w.sites {
		w.run(site, of)
	}
	w.mu.Unlock()
	<-ctx.Done()
	return nil
}

// keep asks from now on the sources that a Site declares, nil for none, and returns what is known. A source whose declaration is unchanged
// keeps running, with its values: only changed sources start over.
func (w *weathers) keep(site types.NamespacedName, declared *v1alpha1.SpaceWeather) *plan.Weather {
	w.mu.Lock()
	defer w.mu.Unlock()
	if declared == nil {
		declared = &v1alpha1.SpaceWeather{}
	}
	of := w.sites[site]
	if of == nil {
		of = &weather{}
	}
	if !equality.Semantic.DeepEqual(of.declared, declared) {
		w.change(site, of, declared)
	}
	if len(declared.Sources) == 0 {
		delete(w.sites, site)
		return nil
	}
	w.sites[site] = of
	w.run(site, of)
	known := &plan.Weather{Signals: of.set.Signals(w.now()), Invalid: of.invalid}
	for _, state := range of.set.States() {
		if state.Error != "" {
			known.Failures = append(known.Failures, plan.SourceFailure{Error: state.Error, Since: state.FailingSince})
		}
	}
	return known
}

// change has a Site's sources be those that it declares; the lock is held. One that cannot be asked keeps no other from it.
func (w *weathers) change(site types.NamespacedName, of *weather, declared *v1alpha1.SpaceWeather) {
	were := of.sources
	of.declared, of.sources = declared.DeepCopy(), nil
	if of.stop != nil {
		of.stop()
		of.stop = nil
	}
	of.invalid = nil
	var pollers []*spaceweather.Poller
	for i := range of.declared.Sources {
		is := of.declared.Sources[i]
		at := slices.IndexFunc(were, func(was *weatherSource) bool { return equality.Semantic.DeepEqual(was.declared, is) })
		if at >= 0 {
			of.sources = append(of.sources, were[at])
			were = slices.Delete(slices.Clone(were), at, at+1)
		} else if source, err := newWeatherSource(is, w.now, w.log.With("site", site.String())); err == nil {
			of.sources = append(of.sources, source)
		} else {
			of.invalid = append(of.invalid, err.Error())
			continue
		}
		pollers = append(pollers, of.sources[len(of.sources)-1].pollers...)
	}
	for _, gone := range were {
		if gone.stop != nil {
			gone.stop()
		}
	}
	of.set = spaceweather.NewSet(pollers...)
}

// planned keeps a Site's plan, for metrics.
func (w *weathers) planned(site types.NamespacedName, surge *v1alpha1.SurgeStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.sites[site]; of != nil {
		of.surge = surge
	}
}

// run starts the pollers that do not run yet, once the manager has started; the lock is held.
func (w *weathers) run(site types.NamespacedName, of *weather) {
	if w.ctx == nil {
		return
	}
	for _, source := range of.sources {
		if source.stop != nil {
			continue
		}
		var ctx context.Context
		ctx, source.stop = context.WithCancel(w.ctx)
		for _, p := range source.pollers {
			go p.Run(ctx)
		}
	}
	if of.stop == nil {
		var ctx context.Context
		ctx, of.stop = context.WithCancel(w.ctx)
		go w.watch(ctx, site, of.set)
	}
}

// watch wakes a Site when one of its sources has news, or fails differently, until ctx ends.
func (w *weathers) watch(ctx context.Context, site types.NamespacedName, set *spaceweather.Set) {
	ticker := time.NewTicker(lookAtWeather)
	defer ticker.Stop()
	var told []spaceweather.State
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		states := set.States()
		if statesDiffer(told, states) {
			w.wakers.sites.wake(site)
		}
		told = states
	}
}

// statesDiffer returns whether sources reported something new, or failed differently.
func statesDiffer(before, after []spaceweather.State) bool {
	if len(before) != len(after) {
		return true
	}
	for i := range after {
		if before[i].Error != after[i].Error || !maps.Equal(before[i].Newest, after[i].Newest) {
			return true
		}
	}
	return false
}
