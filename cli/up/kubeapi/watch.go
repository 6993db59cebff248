// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkInterval is how often a watch that asked for bookmarks gets one, as with etcd's.
const bookmarkInterval = time.Minute

// selector says which objects a list or watch is about.
type selector struct {
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
	// fieldsOf are what the field selector may ask for.
	fieldsOf func(runtime.Object) (fields.Set, error)
}

// matches: an object whose fields cannot be determined is not selected by them.
func (s selector) matches(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	if err != nil || s.namespace != "" && accessor.GetNamespace() != s.namespace {
		return false
	}
	if s.labels != nil && !s.labels.Matches(labels.Set(accessor.GetLabels())) {
		return false
	}
	if s.fields == nil || s.fields.Empty() {
		return true
	}
	set, err := s.fieldsOf(object)
	return err == nil && s.fields.Matches(set)
}

// watcher sends a table's changes. It buffers none: a watcher that is too far behind for the history ends with Expired, and the client
// lists again.
type watcher struct {
	store    *store
	table    *table
	selector selector
	show     func(runtime.Object) runtime.Object // what the client sees of a stored object
	bookmark func() runtime.Object               // an empty one; nil: it wants none
	initial  bool                                // a bookmark ends the first objects
	results  chan watch.Event
	stop     context.CancelFunc
	once     sync.Once
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

func (w *watcher) Stop() { w.once.Do(w.stop) }

// run sends these objects as new ones, then what changes after a version.
func (w *watcher) run(ctx context.Context, first []runtime.Object, version uint64) {
	defer close(w.results)
	for _, object := range first {
		if w.selector.matches(object) && !w.send(ctx, watch.Added, object) {
			return
		}
	}
	if w.initial && !w.mark(ctx, version) {
		return
	}
	var tick <-chan time.Time
	if w.bookmark != nil {
		ticker := time.NewTicker(bookmarkInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		events, now, changed, err := w.store.since(version)
		if err != nil {
			w.end(ctx, err)
			return
		}
		for _, e := range events {
			if e.table == w.table && !w.tell(ctx, e) {
				return
			}
		}
		version = now
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick:
			w.initial = false
			if !w.mark(ctx, version) {
				return
			}
		}
	}
}

// tell sends an event as one of those who select: an object that no longer matches is
// deleted to them.
func (w *watcher) tell(ctx context.Context, e event) bool {
	before := e.old != nil && w.selector.matches(e.old)
	after := e.kind != watch.Deleted && w.selector.matches(e.object)
	switch {
	case after && before:
		return w.send(ctx, watch.Modified, e.object)
	case after:
		return w.send(ctx, watch.Added, e.object)
	case before:
		gone := e.old.DeepCopyObject()
		setVersion(gone, e.version)
		return w.send(ctx, watch.Deleted, gone)
	}
	return true
}

// send sends a copy: encoders write the kind into what they encode.
func (w *watcher) send(ctx context.Context, kind watch.EventType, object runtime.Object) bool {
	select {
	case w.results <- watch.Event{Type: kind, Object: w.show(object.DeepCopyObject())}:
		return true
	case <-ctx.Done():
		return false
	}
}

// mark sends a bookmark. The first one, where the client asked for the objects there are,
// says that these were all.
func (w *watcher) mark(ctx context.Context, version uint64) bool {
	object := w.bookmark()
	setVersion(object, version)
	if accessor, err := meta.Accessor(object); err == nil && w.initial {
		accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	select {
	case w.results <- watch.Event{Type: watch.Bookmark, Object: object}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *watcher) end(ctx context.Context, err error) {
	status := apierrors.NewInternalError(err).ErrStatus
	if errors.Is(err, errTooOld) {
		status = apierrors.NewResourceExpired("too old resource version").ErrStatus
	}
	select {
	case w.results <- watch.Event{Type: watch.Error, Object: &status}:
	case <-ctx.Done():
	}
}
