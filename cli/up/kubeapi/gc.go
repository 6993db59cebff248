// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
)

const (
	// eventsKept bounds the Events, and eventAge is how old they become, as in a cluster.
	eventsKept = 1000
	eventAge   = time.Hour
	// collectRetry is when what could not be collected is tried again.
	collectRetry = 10 * time.Second
)

// collector does what a cluster's garbage collector and its namespace controller do: it
// deletes what belonged to an owner that is gone, ends deletions in the foreground, orphans,
// and empties deleted namespaces.
type collector struct {
	store     *store
	resources []*resource // one per table
	served    map[schema.GroupKind]bool
	events    *table
	spaces    *namespaces
}

// member is an object and what the collector looks at.
type member struct {
	resource *resource
	key      types.NamespacedName
	meta     metav1.Object
}

// run looks at everything once, and again when a change concerns owners. It sleeps while
// there is none.
func (c *collector) run(ctx context.Context) {
	_, version := c.store.list(c.events, "")
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		events, now, changed, err := c.store.since(version)
		crowded := c.store.count(c.events) > eventsKept
		if err != nil { // more changes than the history holds
			_, version = c.store.list(c.events, "")
			retry.Reset(0)
			continue
		}
		version = now
		if slices.ContainsFunc(events, func(e event) bool { return c.concerns(e, crowded) }) {
			retry.Reset(c.collect(ctx))
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry.C:
			retry.Reset(c.collect(ctx))
		}
	}
}

// concerns says whether the collector acts on a change. Crowded: there are too many Events.
func (c *collector) concerns(e event, crowded bool) bool {
	now, err := meta.Accessor(e.object)
	if err != nil {
		return false
	}
	switch e.kind {
	case watch.Deleted:
		return e.table != c.events
	case watch.Added:
		return len(now.GetOwnerReferences()) > 0 || e.table == c.events && crowded
	}
	before, err := meta.Accessor(e.old)
	return err == nil && (now.GetDeletionTimestamp() != nil || len(now.GetOwnerReferences()) != len(before.GetOwnerReferences()))
}

// collect looks at everything and says when to do so again.
func (c *collector) collect(ctx context.Context) time.Duration {
	byUID, dependents, spaces := c.members()
	var errs []error
	for _, m := range byUID {
		errs = append(errs, c.look(ctx, m, byUID, dependents))
	}
	for _, space := range spaces {
		errs = append(errs, c.emptyOut(ctx, space, byUID))
	}
	errs = append(errs, c.expire(ctx))
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		c.store.log.Warn("garbage collection is incomplete; retrying", "error", err)
		return collectRetry
	}
	return eventAge / 4
}

// members are all objects by uid, those that name an owner by its uid, and the Namespaces
// that are being deleted.
func (c *collector) members() (byUID map[types.UID]member, dependents map[types.UID][]member, spaces []member) {
	c.store.mu.RLock()
	defer c.store.mu.RUnlock()
	byUID, dependents = map[types.UID]member{}, map[types.UID][]member{}
	for _, r := range c.resources {
		for key, e := range r.table.objects {
			accessor, err := meta.Accessor(e.object)
			if err != nil {
				continue
			}
			m := member{r, key, accessor}
			byUID[accessor.GetUID()] = m
			for _, owner := range accessor.GetOwnerReferences() {
				dependents[owner.UID] = append(dependents[owner.UID], m)
			}
			if r == c.spaces.resource && accessor.GetDeletionTimestamp() != nil {
				spaces = append(spaces, m)
			}
		}
	}
	return byUID, dependents, spaces
}

// look does what is to be done about one object.
func (c *collector) look(ctx context.Context, m member, byUID map[types.UID]member, dependents map[types.UID][]member) error {
	if c.abandoned(m.meta, byUID) && m.meta.GetDeletionTimestamp() == nil {
		return remove(ctx, m, metav1.DeletePropagationBackground)
	}
	if m.meta.GetDeletionTimestamp() == nil {
		return nil
	}
	switch finalizers := m.meta.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return orphan(m, dependents[m.meta.GetUID()])
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return foreground(ctx, m, dependents[m.meta.GetUID()])
	}
	return nil
}

// abandoned: an object names owners, of kinds that are served here, and none is there.
func (c *collector) abandoned(object metav1.Object, byUID map[types.UID]member) bool {
	owners := object.GetOwnerReferences()
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool {
		_, there := byUID[owner.UID]
		return there || !c.served[schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()]
	})
}

// foreground deletes an owner's dependents and lets it go once none is left that holds it.
func foreground(ctx context.Context, owner member, dependents []member) error {
	held := false
	for _, d := range dependents {
		held = held || slices.ContainsFunc(d.meta.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
			return ref.UID == owner.meta.GetUID() && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
		})
		if d.meta.GetDeletionTimestamp() == nil {
			if err := remove(ctx, d, metav1.DeletePropagationForeground); err != nil {
				return err
			}
		}
	}
	if held {
		return nil // their deletion is a change that concerns
	}
	return release(owner, metav1.FinalizerDeleteDependents)
}

// orphan takes an owner off its dependents and lets it go.
func orphan(owner member, dependents []member) error {
	for _, d := range dependents {
		err := d.resource.modify(d.key, d.meta.GetUID(), func(accessor metav1.Object) {
			accessor.SetOwnerReferences(slices.DeleteFunc(slices.Clone(accessor.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
				return ref.UID == owner.meta.GetUID()
			}))
		})
		if err != nil {
			return err
		}
	}
	return release(owner, metav1.FinalizerOrphanDependents)
}

// emptyOut deletes what is in a deleted namespace, and lets it go once it is empty.
func (c *collector) emptyOut(ctx context.Context, space member, byUID map[types.UID]member) error {
	for _, m := range byUID {
		if m.key.Namespace == space.key.Name && m.meta.GetDeletionTimestamp() == nil {
			if err := remove(ctx, m, metav1.DeletePropagationBackground); err != nil {
				return err
			}
		}
	}
	if !c.spaces.empty(space.key.Name) {
		return nil
	}
	return release(space, namespaceFinalizer)
}

// expire deletes the Events that are too old or too many.
func (c *collector) expire(ctx context.Context) error {
	var of *resource
	for _, r := range c.resources {
		if r.table == c.events {
			of = r
		}
	}
	objects, _ := c.store.list(c.events, "")
	accessors := make([]metav1.Object, 0, len(objects))
	for _, object := range objects {
		if accessor, err := meta.Accessor(object); err == nil {
			accessors = append(accessors, accessor)
		}
	}
	slices.SortFunc(accessors, func(a, b metav1.Object) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	for i, accessor := range accessors {
		if i >= len(accessors)-eventsKept && time.Since(accessor.GetCreationTimestamp().Time) < eventAge {
			break
		}
		m := member{of, types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()}, accessor}
		if err := remove(ctx, m, metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	return nil
}

func remove(ctx context.Context, m member, policy metav1.DeletionPropagation) error {
	uid := m.meta.GetUID()
	_, _, err := m.resource.Delete(inNamespace(ctx, m.key.Namespace), m.key.Name, rest.ValidateAllObjectFunc,
		&metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one by now
		return nil
	}
	return err
}

func release(m member, finalizer string) error {
	return m.resource.modify(m.key, m.meta.GetUID(), func(accessor metav1.Object) {
		accessor.SetFinalizers(slices.DeleteFunc(slices.Clone(accessor.GetFinalizers()), func(f string) bool { return f == finalizer }))
	})
}

// modify changes an object's metadata; the last finalizer gone, a deleted object is too.
func (r *resource) modify(key types.NamespacedName, uid types.UID, change func(metav1.Object)) error {
	for {
		object, version, found := r.store.get(r.table, key)
		if !found {
			return nil
		}
		object = object.DeepCopyObject()
		accessor, err := meta.Accessor(object)
		if err != nil || accessor.GetUID() != uid {
			return err
		}
		change(accessor)
		next := runtime.Object(nil)
		if accessor.GetDeletionTimestamp() == nil || len(accessor.GetFinalizers()) > 0 {
			next = object
		}
		if _, err = r.store.write(r.table, key, version, next, false); !errors.Is(err, errChanged) {
			return err
		}
	}
}
