// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// The kinds of pools, as they are reported.
const (
	feedServers = "feed servers"
	gateways    = "gateways"
)

var poolKinds = []string{feedServers, gateways}

// state is how a pool was at a time.
type state struct {
	At                        time.Time
	Asked, Floor, Pods, Ready int32
}

func value(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func stateOf(pool client.Object) state {
	switch p := pool.(type) {
	case *v1alpha1.FeedServer:
		return state{time.Now(), value(p.Spec.Replicas), value(p.Status.Autoscaling.Floor.Replicas), value(p.Status.Replicas), value(p.Status.ReadyReplicas)}
	case *v1alpha1.IngestGateway:
		return state{time.Now(), value(p.Spec.Replicas), value(p.Status.Autoscaling.Floor.Replicas), value(p.Status.Replicas), value(p.Status.ReadyReplicas)}
	}
	return state{}
}

// history is how the pools of a policy were, by kind.
type history struct {
	mu     sync.Mutex
	states map[string][]state
}

// watch notes each change of a policy's pools until ctx ends.
func (b *bench) watch(ctx context.Context, p policy) *history {
	h := &history{states: map[string][]state{}}
	for kind, list := range map[string]client.ObjectList{feedServers: &v1alpha1.FeedServerList{}, gateways: &v1alpha1.IngestGatewayList{}} {
		go func() {
			for ctx.Err() == nil {
				if err := b.follow(ctx, list, func(pool client.Object) {
					if pool.GetName() == p.name {
						h.note(kind, stateOf(pool))
					}
				}); err != nil && ctx.Err() == nil {
					b.line("watching the %s: %v", kind, err)
				}
				retry.Sleep(ctx, time.Second)
			}
		}()
	}
	return h
}

// follow calls seen with what there is, and with each change, until the watch ends.
func (b *bench) follow(ctx context.Context, list client.ObjectList, seen func(client.Object)) error {
	w, err := b.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if o, isObject := event.Object.(client.Object); isObject && (event.Type == watch.Added || event.Type == watch.Modified) {
				seen(o)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *history) note(kind string, is state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.states[kind]
	if n := len(all); n > 0 {
		was := all[n-1]
		was.At = is.At
		if was == is {
			return
		}
	}
	h.states[kind] = append(all, is)
}

// at is how a pool was at a time.
func (h *history) at(kind string, when time.Time) (is state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.states[kind] {
		if s.At.After(when) {
			break
		}
		is = s
	}
	return is
}

// since is when a pool first was so, from a time on.
func (h *history) since(kind string, from time.Time, so func(state) bool) (when time.Time, found bool) {
	if so(h.at(kind, from)) {
		return from, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.states[kind], func(s state) bool { return s.At.After(from) && so(s) })
	if i < 0 {
		return time.Time{}, false
	}
	return h.states[kind][i].At, true
}

// most pods that were ready.
func (h *history) most(kind string) (most int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.states[kind] {
		most = max(most, s.Ready)
	}
	return most
}

// String is how the pools are now.
func (h *history) String() string {
	var all []string
	for _, kind := range poolKinds {
		is := h.at(kind, time.Now())
		all = append(all, fmt.Sprintf("%s: asked %d, floor %d, ready %d", kind, is.Asked, is.Floor, is.Ready))
	}
	return strings.Join(all, "; ")
}
