// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is what a kind does with an object before it is stored.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}

// resource is a kind's objects as the handlers of k8s.io/apiserver want them: what
// registry/generic/registry.Store is to etcd, over the store.
type resource struct {
	rest.TableConvertor
	store    *store
	table    *table
	spaces   *namespaces
	name     schema.GroupResource
	singular string
	strategy strategy
	lazy     bool // changes may be on disk later
	newFunc  func() runtime.Object
	newList  func() runtime.Object
	fieldsOf func(runtime.Object) (fields.Set, error)
	// settle brings an object into the form that it would have if it were read from disk. It
	// may change the object.
	settle func(runtime.Object) error
	// show and keep translate between what is stored and what clients of this version see.
	show, keep func(runtime.Object) runtime.Object
}

var _ rest.StandardStorage = (*resource)(nil)

func (r *resource) New() runtime.Object     { return r.newFunc() }
func (r *resource) NewList() runtime.Object { return r.newList() }
func (r *resource) Destroy()                {}
func (r *resource) NamespaceScoped() bool   { return r.strategy.NamespaceScoped() }
func (r *resource) GetSingularName() string { return r.singular }

func (r *resource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.strategy.GetResetFields()
}

func (r *resource) key(ctx context.Context, name string) types.NamespacedName {
	if !r.NamespaceScoped() {
		return types.NamespacedName{Name: name}
	}
	return types.NamespacedName{Namespace: request.NamespaceValue(ctx), Name: name}
}

// read returns a copy of an object.
func (r *resource) read(key types.NamespacedName) (runtime.Object, uint64, error) {
	object, version, found := r.store.get(r.table, key)
	if !found {
		return nil, 0, apierrors.NewNotFound(r.name, key.Name)
	}
	return r.show(object.DeepCopyObject()), version, nil
}

func (r *resource) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	object, _, err := r.read(r.key(ctx, name))
	return object, err
}

// write stores an object, unless it is a dry run, and returns it as a client sees it.
func (r *resource) write(key types.NamespacedName, version uint64, object runtime.Object, dry []string) (runtime.Object, error) {
	if object != nil {
		if err := r.settle(object); err != nil {
			return nil, err
		}
	}
	if dryrun.IsDryRun(dry) {
		return object, nil
	}
	if object != nil {
		object = r.keep(object)
	}
	stored, err := r.store.write(r.table, key, version, object, r.lazy)
	if err != nil {
		if errors.Is(err, errChanged) {
			return nil, err
		}
		return nil, apierrors.NewInternalError(err)
	}
	return r.show(stored.DeepCopyObject()), nil
}

func (r *resource) selector(ctx context.Context, options *internalversion.ListOptions) selector {
	s := selector{fieldsOf: r.fieldsOf}
	if r.NamespaceScoped() {
		s.namespace = request.NamespaceValue(ctx)
	}
	if options != nil {
		s.labels, s.fields = options.LabelSelector, options.FieldSelector
	}
	return s
}

// List returns all objects as they are now: limits are ignored, and no state but the present one is available.
func (r *resource) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	wanted := r.selector(ctx, options)
	objects, version := r.store.list(r.table, wanted.namespace)
	if options != nil {
		if err := checkListOptions(options, version); err != nil {
			return nil, err
		}
	}
	selected := make([]runtime.Object, 0, len(objects))
	for _, object := range objects {
		if shown := r.show(object); wanted.matches(shown) {
			selected = append(selected, shown.DeepCopyObject())
		}
	}
	list := r.newList()
	if err := meta.SetList(list, selected); err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(strconv.FormatUint(version, 10))
	return list, nil
}

// checkListOptions errs where the state now is not one that the options allow.
func checkListOptions(options *internalversion.ListOptions, version uint64) error {
	if options.Continue != "" {
		return apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
	}
	if options.ResourceVersion == "" {
		return nil
	}
	asked, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
	switch {
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", options.ResourceVersion))
	case asked > version:
		return storage.NewTooLargeResourceVersionError(asked, version, 1)
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact && asked != version:
		return apierrors.NewResourceExpired("The provided resource version is too old.")
	}
	return nil
}

func (r *resource) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	w := &watcher{store: r.store, table: r.table, selector: r.selector(ctx, options), show: r.show, results: make(chan watch.Event)}
	w.selector.fieldsOf = func(object runtime.Object) (fields.Set, error) { return r.fieldsOf(r.show(object)) }
	ctx, w.stop = context.WithCancel(ctx)
	var first []runtime.Object
	var version uint64
	if options == nil {
		options = &internalversion.ListOptions{}
	}
	if options.AllowWatchBookmarks {
		w.bookmark = r.newFunc
	}
	asked, err := strconv.ParseUint("0"+options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", options.ResourceVersion))
	}
	objects, now := r.store.list(r.table, w.selector.namespace)
	switch all := options.SendInitialEvents; {
	case asked > now:
		return nil, storage.NewTooLargeResourceVersionError(asked, now, 1)
	case all != nil && *all:
		first, version, w.initial = objects, now, w.bookmark != nil
	case asked > 0:
		version = asked
	case all != nil:
		version = now
	default:
		first, version = objects, now
	}
	if _, _, _, err := r.store.since(version); err != nil {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))
	}
	go w.run(ctx, first, version)
	return w, nil
}

func (r *resource) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(accessor)
	if accessor.GetGenerateName() != "" && accessor.GetName() == "" {
		accessor.SetName(r.strategy.GenerateName(accessor.GetGenerateName()))
	}
	return r.create(ctx, object, validate, options.DryRun)
}

// create stores an object whose system fields are filled in.
func (r *resource) create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, dry []string) (runtime.Object, error) {
	if err := rest.BeforeCreate(r.strategy, ctx, object); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	key := r.key(ctx, accessor.GetName())
	if r.NamespaceScoped() {
		if err := r.spaces.enter(ctx, key.Namespace, r.name, key.Name, dry); err != nil {
			return nil, err
		}
	}
	if current, _, found := r.store.get(r.table, key); found {
		return nil, r.exists(ctx, object, current, key)
	}
	created, err := r.write(key, 0, object, dry)
	if errors.Is(err, errChanged) {
		return nil, r.exists(ctx, object, nil, key)
	}
	return created, err
}

func (r *resource) exists(ctx context.Context, object, current runtime.Object, key types.NamespacedName) error {
	err := apierrors.NewAlreadyExists(r.name, key.Name)
	if accessor, _ := meta.Accessor(current); current != nil && accessor != nil && accessor.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return rest.CheckGeneratedNameError(ctx, r.strategy, err, object)
}

func (r *resource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	key := r.key(ctx, name)
	for {
		current, version, found := r.store.get(r.table, key)
		if !found && !forceAllowCreate {
			return nil, false, apierrors.NewNotFound(r.name, name)
		}
		if !found {
			object, err := r.createByUpdate(ctx, info, createValidation, options)
			if apierrors.IsAlreadyExists(err) {
				continue // made meanwhile: it is updated now
			}
			return object, true, err
		}
		// A copy: parts of it get into the new object.
		object, err := r.update(ctx, key, r.show(current.DeepCopyObject()), version, info, updateValidation, options)
		if !errors.Is(err, errChanged) {
			return object, false, err
		}
	}
}

// createByUpdate is server-side apply of an object that there is not.
func (r *resource) createByUpdate(ctx context.Context, info rest.UpdatedObjectInfo, validate rest.ValidateObjectFunc, options *metav1.UpdateOptions) (runtime.Object, error) {
	object, err := info.UpdatedObject(ctx, r.newFunc())
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	rest.WipeObjectMetaSystemFields(accessor)
	rest.FillObjectMetaSystemFields(accessor)
	return r.create(ctx, object, validate, options.DryRun)
}

// update returns errChanged where it is to be tried again.
func (r *resource) update(ctx context.Context, key types.NamespacedName, current runtime.Object, version uint64,
	info rest.UpdatedObjectInfo, validate rest.ValidateObjectUpdateFunc, options *metav1.UpdateOptions) (runtime.Object, error) {
	if err := checkPreconditions(info.Preconditions(), current, r.name, key.Name); err != nil {
		return nil, err
	}
	object, err := info.UpdatedObject(ctx, current.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	if err := r.checkVersion(ctx, object, version, key.Name); err != nil {
		return nil, err
	}
	if err := rest.BeforeUpdate(r.strategy, ctx, object, current); err != nil {
		return nil, err
	}
	if object, err = fieldmanager.IgnoreManagedFieldsTimestampsTransformer(ctx, object, current); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject(), current.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if finished(object, current) {
		_, err := r.write(key, version, nil, options.DryRun)
		return object, err
	}
	if apiequality.Semantic.DeepEqual(object, current) {
		return object, nil // as with etcd: what changes nothing is not written
	}
	return r.write(key, version, object, options.DryRun)
}

// checkVersion errs where a client has seen another version of an object than the current
// one. An update without one changes what there is, where the kind allows that.
func (r *resource) checkVersion(ctx context.Context, object runtime.Object, version uint64, name string) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	seen, current := accessor.GetResourceVersion(), strconv.FormatUint(version, 10)
	switch {
	case (seen == "" || seen == "0") && r.strategy.AllowUnconditionalUpdate(ctx):
		accessor.SetResourceVersion(current)
	case seen == "" || seen == "0":
		return apierrors.NewInvalid(schema.GroupKind{Group: r.name.Group, Kind: r.name.Resource}, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata").Child("resourceVersion"), 0, "must be specified for an update")})
	case seen != current:
		return apierrors.NewConflict(r.name, name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// checkPreconditions errs where an object is not the one that preconditions are about.
func checkPreconditions(preconditions *metav1.Preconditions, object runtime.Object, resource schema.GroupResource, name string) error {
	accessor, err := meta.Accessor(object)
	if err != nil || preconditions == nil {
		return err
	}
	// In the words of the API server.
	const text = "Precondition failed: %[1]s in precondition: %[2]v, %[1]s in object meta: %[3]v"
	if uid := preconditions.UID; uid != nil && *uid != accessor.GetUID() {
		return apierrors.NewConflict(resource, name, fmt.Errorf(text, "UID", *uid, accessor.GetUID()))
	}
	if v := preconditions.ResourceVersion; v != nil && *v != accessor.GetResourceVersion() {
		return apierrors.NewConflict(resource, name, fmt.Errorf(text, "ResourceVersion", *v, accessor.GetResourceVersion()))
	}
	return nil
}

// finished: the last finalizer of a deleted object is removed.
func finished(object, current runtime.Object) bool {
	now, err := meta.Accessor(object)
	before, err2 := meta.Accessor(current)
	return err == nil && err2 == nil && before.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0
}

// markDeleted says that an object is deleted once its finalizers are gone.
func markDeleted(accessor metav1.Object) {
	if accessor.GetDeletionTimestamp() == nil {
		if accessor.GetGeneration() > 0 {
			accessor.SetGeneration(accessor.GetGeneration() + 1)
		}
		now := metav1.NewTime(time.Now())
		accessor.SetDeletionTimestamp(&now)
	}
	zero := int64(0)
	accessor.SetDeletionGracePeriodSeconds(&zero)
}
