// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// namespaceFinalizer holds a deleted Namespace until nothing is in it. A cluster uses
// spec.finalizers for this.
const namespaceFinalizer = "kubernetes"

// lastingNamespaces cannot be deleted, as by the API server's admission plugin NamespaceLifecycle: the keys of a Site are in one of them.
var lastingNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

// namespaces makes a Namespace when something is first created in it: manifests of a site name one, and on a station nothing else makes
// it.
type namespaces struct {
	resource *resource // of the Namespaces
	store    *store
}

func inNamespace(ctx context.Context, namespace string) context.Context {
	return request.WithNamespace(ctx, namespace)
}

// enter returns an error if nothing can be created in a namespace, because it is being deleted.
func (n *namespaces) enter(ctx context.Context, name string, resource schema.GroupResource, object string, dry []string) error {
	current, _, found := n.store.get(n.resource.table, types.NamespacedName{Name: name})
	if !found {
		if dryrun.IsDryRun(dry) {
			return nil
		}
		err := n.make(ctx, name)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	space, ok := current.(*corev1.Namespace)
	if !ok || space.DeletionTimestamp == nil {
		return nil
	}
	err := apierrors.NewForbidden(resource, object, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", name), Field: "metadata.namespace"})
	return err
}

func (n *namespaces) make(ctx context.Context, name string) error {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	_, err := n.resource.Create(inNamespace(ctx, ""), space, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

// empty says whether nothing is in a namespace.
func (n *namespaces) empty(name string) bool {
	n.store.mu.RLock()
	defer n.store.mu.RUnlock()
	for _, t := range n.store.tables {
		for key := range t.objects {
			if key.Namespace == name {
				return false
			}
		}
	}
	return true
}
