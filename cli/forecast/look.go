// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/surge/ceiling"
)

// seen is a Site with its pools, and the space of its namespace.
type seen struct {
	site     *v1alpha1.Site
	gateways []v1alpha1.IngestGateway
	servers  []v1alpha1.FeedServer
	sets     []appsv1.StatefulSet
	space    *ceiling.Space
}

// readCluster reads all of it.
func readCluster(ctx context.Context, cluster *kube.Cluster, name string) (*seen, error) {
	site, err := cluster.Site(ctx, name)
	if err != nil {
		return nil, err
	}
	if meta.IsStatusConditionTrue(site.Status.Conditions, v1alpha1.ConditionNotApplied) {
		return nil, fmt.Errorf("Site %q runs in one process (substorm up): each of its pools is one, and none grows", site.Name)
	}
	var gateways v1alpha1.IngestGatewayList
	var servers v1alpha1.FeedServerList
	var sets appsv1.StatefulSetList
	var quotas corev1.ResourceQuotaList
	var claims corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&gateways, &servers, &sets, &quotas, &claims, &pods} {
		if err := cluster.List(ctx, list); err != nil {
			return nil, err
		}
	}
	s := &seen{site: site, sets: sets.Items, space: &ceiling.Space{Quotas: quotas.Items, Claims: claims.Items, Pods: pods.Items}}
	s.gateways = slices.DeleteFunc(gateways.Items, func(g v1alpha1.IngestGateway) bool { return g.Spec.SiteRef.Name != site.Name })
	s.servers = slices.DeleteFunc(servers.Items, func(f v1alpha1.FeedServer) bool { return f.Spec.SiteRef.Name != site.Name })
	slices.SortFunc(s.gateways, func(a, b v1alpha1.IngestGateway) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.servers, func(a, b v1alpha1.FeedServer) int { return cmp.Compare(a.Name, b.Name) })
	var all []metav1.Object
	for i := range s.gateways {
		all = append(all, &s.gateways[i])
	}
	for i := range s.servers {
		all = append(all, &s.servers[i])
	}
	for _, o := range all {
		if why := finding.Unreadable(o); why != "" {
			return nil, fmt.Errorf("this version cannot read %q (%s): correct it, or use the version that it was written for", o.GetName(), why)
		}
	}
	return s, s.lookAtNodes(ctx, cluster.Client)
}

// lookAtNodes reads what takes a right in the whole cluster, if there is one.
func (s *seen) lookAtNodes(ctx context.Context, c client.Client) error {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var volumes corev1.PersistentVolumeList
	var classes storagev1.StorageClassList
	for _, list := range []client.ObjectList{&nodes, &pods, &volumes, &classes} {
		switch err := c.List(ctx, list); {
		case apierrors.IsForbidden(err):
			s.space.Unread = "you may not list nodes, pods, PersistentVolumes and StorageClasses of the whole cluster"
			return nil
		case err != nil:
			return fmt.Errorf("read the cluster's nodes: %w", err)
		}
	}
	s.space.Nodes = ceiling.NewNodes(nodes.Items, pods.Items, classes.Items, volumes.Items)
	return nil
}
