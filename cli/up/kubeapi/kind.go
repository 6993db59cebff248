// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/scale"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// maxBody is the largest request body, as with the API server.
const maxBody = 3 << 20

// kind is what is served for a kind.
type kind struct {
	gvk        schema.GroupVersionKind
	plural     string
	namespaced bool
	short      []string
	categories []string
	main       *resource
	status     *statusResource
	scale      *scaleResource
	scope      *handlers.RequestScope
	ofStatus   *handlers.RequestScope
	ofScale    *handlers.RequestScope
	patches    []string // media types of patches
	// goType or schema describe it.
	goType reflect.Type
	schema func() *spec.Schema
}

// fieldManagers makes what tracks who set which field, for a scope.
type fieldManagers func(handlers.RequestScope, map[fieldpath.APIVersion]*fieldpath.Set) (*managedfields.FieldManager, error)

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk.Group, Resource: k.plural}
}

// addScopes makes what the handlers need for the kind and its subresources: status and scale if there are a strategy and paths for them.
func (k *kind) addScopes(base handlers.RequestScope, manage fieldManagers, status strategy, paths *scalePaths) error {
	base.Namer = handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !k.namespaced}
	base.Authorizer = everyone{}
	base.Resource = k.gvk.GroupVersion().WithResource(k.plural)
	base.Kind, base.HubGroupVersion, base.MetaGroupVersion = k.gvk, k.gvk.GroupVersion(), metav1.SchemeGroupVersion
	base.TableConvertor, base.MaxRequestBodyBytes = k.main, maxBody
	equivalent := runtime.NewEquivalentResourceRegistry()
	base.EquivalentResourceMapper = equivalent
	equivalent.RegisterKindFor(base.Resource, "", k.gvk)
	var err error
	scope := base
	if scope.FieldManager, err = manage(scope, k.main.GetResetFields()); err != nil {
		return err
	}
	k.scope = &scope
	if status != nil {
		equivalent.RegisterKindFor(base.Resource, "status", k.gvk)
		changed := *k.main
		changed.strategy, changed.lazy = status, true
		k.status = &statusResource{&changed}
		of := base
		of.Subresource = "status"
		if of.FieldManager, err = manage(of, changed.GetResetFields()); err != nil {
			return err
		}
		k.ofStatus = &of
	}
	if paths == nil {
		return nil
	}
	equivalent.RegisterKindFor(base.Resource, "scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	return k.addScale(base, manage, paths)
}

func (k *kind) addScale(base handlers.RequestScope, manage fieldManagers, paths *scalePaths) error {
	k.scale = newScale(k, paths)
	columns, err := tableconvertor.New(columnsOf("Desired=.spec.replicas Available=.status.replicas"))
	if err != nil {
		return err
	}
	of := base
	of.Subresource, of.Kind, of.TableConvertor = "scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"), columns
	of.Serializer = serializer.NewCodecFactory(scale.NewScaleConverter().Scheme(),
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	if of.FieldManager, err = manage(of, nil); err != nil {
		return err
	}
	k.ofScale = &of
	return nil
}

// patchTypes are the media types of patches; those of custom resources have no strategic merge.
func patchTypes(custom bool) []string {
	all := []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	if !custom {
		all = append(all, string(types.StrategicMergePatchType))
	}
	return all
}

// handler returns what answers a verb on the kind or a subresource; nil: nothing does.
func (k *kind) handler(verb, subresource string) http.HandlerFunc {
	switch {
	case subresource == "":
		return k.mainHandler(verb)
	case subresource == "status" && k.status != nil:
		return k.partHandler(verb, k.status, k.ofStatus)
	case subresource == "scale" && k.scale != nil:
		return k.partHandler(verb, k.scale, k.ofScale)
	}
	return nil
}

func (k *kind) mainHandler(verb string) http.HandlerFunc {
	switch verb {
	case "get":
		return handlers.GetResource(k.main, k.scope)
	case "list", "watch":
		return handlers.ListResource(k.main, k.main, k.scope, verb == "watch", minWatch)
	case "create":
		return handlers.CreateResource(k.main, k.scope, nil)
	case "update":
		return handlers.UpdateResource(k.main, k.scope, nil)
	case "patch":
		return handlers.PatchResource(k.main, k.scope, nil, k.patches)
	case "delete":
		return handlers.DeleteResource(k.main, true, k.scope, nil)
	case "deletecollection":
		return handlers.DeleteCollection(k.main, true, k.scope, nil)
	}
	return nil
}

func (k *kind) partHandler(verb string, part rest.Patcher, scope *handlers.RequestScope) http.HandlerFunc {
	switch verb {
	case "get":
		return handlers.GetResource(part, scope)
	case "update":
		return handlers.UpdateResource(part, scope, nil)
	case "patch":
		return handlers.PatchResource(part, scope, nil, k.patches)
	}
	return nil
}

// statusResource changes the status of objects that there are.
type statusResource struct{ of *resource }

func (s *statusResource) New() runtime.Object { return s.of.New() }
func (s *statusResource) Destroy()            {}

func (s *statusResource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.of.Get(ctx, name, options)
}

func (s *statusResource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.of.Update(ctx, name, info, create, update, false, options)
}

func (s *statusResource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.of.GetResetFields()
}

// everyone may do everything: who has the token is the one user.
type everyone struct{}

func (everyone) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// splitPath: "spec.replicas", with or without a first dot.
func splitPath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
