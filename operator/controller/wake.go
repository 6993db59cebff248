// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waker is a source of a controller: events outside the API server wake the controller for one resource. It never waits.
type waker struct {
	// noted is called before each wake; nil for nothing.
	noted func(types.NamespacedName)

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// start implements source.Func. Objects that were to be woken before are found by the first
// reconciliation of everything.
func (w *waker) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

func (w *waker) wake(key types.NamespacedName) {
	if w.noted != nil {
		w.noted(key)
	}
	w.wakeFor(key)
}

// wakeFor wakes the controller; the caller has noted the reason itself.
func (w *waker) wakeFor(key types.NamespacedName) {
	w.mu.Lock()
	queue := w.queue
	w.mu.Unlock()
	if queue != nil {
		queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// wakers wake the controllers.
type wakers struct {
	sites, gateways, servers, instruments, registries, feeds, consumers, mirrors waker
}
