// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Seen is what any client can see of a Site: statuses of Instruments, and the registry.
type Seen struct {
	registry jetstream.JetStream
	// revision of the newest registry that is complete.
	revision atomic.Int64

	mu    sync.Mutex
	ready map[string]bool
	holds map[string]bool
	// entries are generations and when they could be read.
	entries map[change]time.Time
	changes map[change]time.Time
}

type change struct {
	instrument string
	generation int64
}

func newSeen() *Seen {
	return &Seen{ready: map[string]bool{}, holds: map[string]bool{}, entries: map[change]time.Time{}, changes: map[change]time.Time{}}
}

// watchInstruments follows which Instruments are Programmed at their generation.
func (s *Seen) watchInstruments(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, namespace string) error {
	all, err := cache.New(cfg, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	informer, err := all.GetInformer(ctx, &v1alpha1.Instrument{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.instrument(o.(*v1alpha1.Instrument)) },
		UpdateFunc: func(_, o any) { s.instrument(o.(*v1alpha1.Instrument)) },
		DeleteFunc: func(o any) {
			if inst, ok := o.(*v1alpha1.Instrument); ok {
				s.gone(inst.Name)
			}
		},
	})
	go func() { _ = all.Start(ctx) }()
	return err
}

func (s *Seen) instrument(inst *v1alpha1.Instrument) {
	c := meta.FindStatusCondition(inst.Status.Conditions, v1alpha1.ConditionProgrammed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready[inst.Name] = c != nil && c.Status == "True" && c.ObservedGeneration == inst.Generation
}

func (s *Seen) gone(instrument string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ready, instrument)
}

// left notes that an instrument has no entry any more.
func (s *Seen) left(instrument string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, instrument)
}

// Entries is how many instruments the registry has.
func (s *Seen) Entries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds)
}

// watchRegistry follows the registry's entries.
func (s *Seen) watchRegistry(ctx context.Context, site string) error {
	kv, err := s.registry.KeyValue(ctx, wire.RegistryBucket(site))
	if err != nil {
		return err
	}
	watch, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	go func() {
		for entry := range watch.Updates() {
			if entry == nil {
				continue
			}
			if entry.Operation() == jetstream.KeyValuePut {
				s.entry(entry.Key(), entry.Value(), time.Now())
			} else if name, ok := wire.ParseRegistryInstrumentKey(entry.Key()); ok {
				s.left(name)
			}
		}
	}()
	return nil
}

func (s *Seen) entry(key string, value []byte, at time.Time) {
	if key == wire.RegistryCompleteKey {
		if complete, err := wire.Decode[wire.RegistryComplete](value); err == nil {
			s.revision.Store(complete.Revision)
		}
		return
	}
	if _, ok := wire.ParseRegistryInstrumentKey(key); !ok {
		return
	}
	e, err := wire.Decode[wire.InstrumentEntry](value)
	if err != nil {
		Said("registry entry %s: %v", key, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[e.Instrument] = e.LegalHold
	if c := (change{e.Instrument, e.Generation}); s.entries[c].IsZero() {
		s.entries[c] = at
	}
}

// declared remembers when the API server had taken a change.
func (s *Seen) declared(instrument string, generation int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes[change{instrument, generation}] = at
}

// Waits are how long changes took until they could be read in the registry; those
// that cannot be read yet are left out.
func (s *Seen) Waits() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for c, declared := range s.changes {
		if at, ok := s.entries[c]; ok {
			all = append(all, max(0, at.Sub(declared)))
		}
	}
	return all
}

// ForgetWaits resets what Waits returns.
func (s *Seen) ForgetWaits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.changes)
}

// Programmed is how many Instruments are so at their generation.
func (s *Seen) Programmed() int { return s.count(s.ready) }

// Held is how many entries are under legal hold.
func (s *Seen) Held() int { return s.count(s.holds) }

func (s *Seen) count(which map[string]bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, is := range which {
		if is {
			n++
		}
	}
	return n
}
