// SPDX-License-Identifier: Apache-2.0

package controller

// Functions that name the resources to reconcile after an event of another object.

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/workload"
)

// feedOf names the Feed of a FeedConsumer.
func feedOf(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{request(o.GetNamespace(), o.(*v1alpha1.FeedConsumer).Spec.FeedRef.Name)}
}

// siteOfConsumer names the Site of a FeedConsumer's Feed; if there is no such Feed, all of the namespace: one of them may hold objects that
// were made for it.
func (s *setup) siteOfConsumer(ctx context.Context, o client.Object) []reconcile.Request {
	var feed v1alpha1.Feed
	if s.mgr.GetClient().Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.(*v1alpha1.FeedConsumer).Spec.FeedRef.Name}, &feed) == nil {
		return []reconcile.Request{request(feed.Namespace, feed.Spec.SiteRef.Name)}
	}
	return s.listRequests(ctx, &v1alpha1.SiteList{}, client.InNamespace(o.GetNamespace()))
}

// consumersOf names the FeedConsumers of a Feed.
func (s *setup) consumersOf(ctx context.Context, o client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.FeedConsumerList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{feedField: o.GetName()})
}

// everyConsumer names all FeedConsumers of a namespace.
func (s *setup) everyConsumer(ctx context.Context, o client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.FeedConsumerList{}, client.InNamespace(o.GetNamespace()))
}

// everyConsumerOfServer: a feed server's address is theirs.
func (s *setup) everyConsumerOfServer(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetLabels()[workload.LabelName] != workload.FeedServerProgram {
		return nil
	}
	return s.everyConsumer(ctx, o)
}

// listRequests names the objects that a list has in the cache.
func (s *setup) listRequests(ctx context.Context, list client.ObjectList, options ...client.ListOption) (all []reconcile.Request) {
	if err := s.mgr.GetClient().List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return all
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// siteOf names the Site of a pool, a FeedServer or a Feed.
func siteOf(_ context.Context, o client.Object) []reconcile.Request {
	switch o := o.(type) {
	case *v1alpha1.IngestGateway:
		return []reconcile.Request{request(o.Namespace, o.Spec.SiteRef.Name)}
	case *v1alpha1.FeedServer:
		return []reconcile.Request{request(o.Namespace, o.Spec.SiteRef.Name)}
	case *v1alpha1.Feed:
		return []reconcile.Request{request(o.Namespace, o.Spec.SiteRef.Name)}
	default:
		return nil
	}
}

// sitesOfMirror names the Site of a MirrorPartner and, for one that pushes, the Sites whose MirrorPartners push too: a place that one of
// them takes or gives up affects the others.
func (s *setup) sitesOfMirror(ctx context.Context, o client.Object) []reconcile.Request {
	mirror := o.(*v1alpha1.MirrorPartner)
	sites := map[string]bool{mirror.Spec.SiteRef.Name: true}
	if mirror.Spec.Direction == v1alpha1.MirrorPush {
		var mirrors v1alpha1.MirrorPartnerList
		if err := s.mgr.GetClient().List(ctx, &mirrors, client.InNamespace(mirror.Namespace), client.UnsafeDisableDeepCopy); err == nil {
			for i := range mirrors.Items {
				if mirrors.Items[i].Spec.Direction == v1alpha1.MirrorPush {
					sites[mirrors.Items[i].Spec.SiteRef.Name] = true
				}
			}
		}
	}
	var all []reconcile.Request
	for _, name := range sortedKeys(sites) {
		all = append(all, request(mirror.Namespace, name))
	}
	return all
}

// poolOf names the pool of a pod or Service.
func poolOf(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{request(o.GetNamespace(), o.GetLabels()[workload.LabelInstance])}
}

// receivedByPoolOf names the Instruments that the pool of a pod or Service receives for.
func (l *links) receivedByPoolOf(_ context.Context, o client.Object) []reconcile.Request {
	var all []reconcile.Request
	for _, site := range l.keys() {
		if site.Namespace != o.GetNamespace() {
			continue
		}
		for _, name := range l.facts(site).receivedBy(o.GetLabels()[workload.LabelInstance], false) {
			all = append(all, request(site.Namespace, name))
		}
	}
	return all
}

// sitesOfCode names a Site, which may be deleted, and those that claim its code: a code that it gives up becomes another Site's. Its other
// fields do not matter to other Sites.
func (s *setup) sitesOfCode(ctx context.Context, o client.Object) []reconcile.Request {
	all := []reconcile.Request{request(o.GetNamespace(), o.GetName())}
	var sites v1alpha1.SiteList
	if err := s.mgr.GetClient().List(ctx, &sites, client.UnsafeDisableDeepCopy); err != nil {
		return all
	}
	for _, key := range plan.ClaimantsOf(o.(*v1alpha1.Site), sites.Items) {
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}

// everyGateway names all pools: node ports that one gives up become available to another.
func (s *setup) everyGateway(ctx context.Context, _ client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.IngestGatewayList{})
}

// gatewaysOfSite names the pools of a Site.
func (s *setup) gatewaysOfSite(ctx context.Context, o client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.IngestGatewayList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{siteField: o.GetName()})
}

// everyServer names all FeedServers of a namespace.
func (s *setup) everyServer(ctx context.Context, o client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.FeedServerList{}, client.InNamespace(o.GetNamespace()))
}

// everyMirror names all MirrorPartners of a namespace.
func (s *setup) everyMirror(ctx context.Context, o client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.MirrorPartnerList{}, client.InNamespace(o.GetNamespace()))
}

// mirrorOf names the MirrorPartner of a pod or Job.
func mirrorOf(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetLabels()[workload.LabelName] != workload.MirrorProgram {
		return nil
	}
	return []reconcile.Request{request(o.GetNamespace(), o.GetLabels()[workload.LabelInstance])}
}

// everyServerOfSite names all FeedServers of the Site of one: each needs the others' addresses.
func (s *setup) everyServerOfSite(ctx context.Context, o client.Object) []reconcile.Request {
	return s.listRequests(ctx, &v1alpha1.FeedServerList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{siteField: o.(*v1alpha1.FeedServer).Spec.SiteRef.Name})
}
