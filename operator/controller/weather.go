// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge/spaceweather"
)

// lookAtWeather is how often it is looked whether a source told anything new. It costs no request.
const lookAtWeather = time.Second

// weathers ask the sources of space weather that Sites declare, and wake a Site when one of them tells something.
type weathers struct {
	wakers *wakers
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	sites map[types.NamespacedName]*weather
	// told are the levels that feed servers were told of.
	told map[types.NamespacedName]*wire.SurgeLevel
	ctx  context.Context // nil until Start
}

// weather is what a Site declares, and who asks for it.
type weather struct {
	declared *v1alpha1.SpaceWeather
	set      *spaceweather.Set
	problem  string
	cancel   context.CancelFunc
	// surge is what was last planned.
	surge *v1alpha1.SurgeStatus
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

// keep asks from now on what a Site declares, nil for nothing, and returns what is known.
func (w *weathers) keep(site types.NamespacedName, declared *v1alpha1.SpaceWeather) *plan.Weather {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.sites[site]
	if of != nil && !equality.Semantic.DeepEqual(of.declared, declared) {
		of.cancel()
		delete(w.sites, site)
		of = nil
	}
	if declared == nil || len(declared.Sources) == 0 {
		return nil
	}
	if of == nil {
		of = &weather{declared: declared.DeepCopy(), cancel: func() {}}
		sources, err := weatherSources(declared, w.now, w.log.With("site", site.String()))
		if err == nil {
			of.set, err = spaceweather.NewSet(sources...)
		}
		if err != nil {
			of.problem = err.Error()
		}
		w.sites[site] = of
		w.run(site, of)
	}
	if of.set == nil {
		return &plan.Weather{Problem: of.problem}
	}
	known := &plan.Weather{Signals: of.set.Signals(w.now())}
	for _, state := range of.set.States() {
		if state.Error != "" {
			known.Errors = append(known.Errors, state.Error)
		}
	}
	return known
}

// planned keeps what was planned for a Site, for metrics.
func (w *weathers) planned(site types.NamespacedName, surge *v1alpha1.SurgeStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.sites[site]; of != nil {
		of.surge = surge
	}
}

// run begins to ask, once the manager has started; the lock is held.
func (w *weathers) run(site types.NamespacedName, of *weather) {
	if w.ctx == nil || of.set == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	of.cancel = cancel
	go of.set.Run(ctx)
	go func() {
		var told []spaceweather.State
		for ticker := time.NewTicker(lookAtWeather); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			states := of.set.States()
			if toldMore(told, states) {
				w.wakers.sites.wake(site)
			}
			told = states
		}
	}()
}

// toldMore says whether sources have told, or failed, otherwise than before.
func toldMore(was, is []spaceweather.State) bool {
	if len(was) != len(is) {
		return true
	}
	for i := range is {
		if was[i].Error != is[i].Error || !maps.Equal(was[i].Newest, is[i].Newest) {
			return true
		}
	}
	return false
}
