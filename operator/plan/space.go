// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/surge/ceiling"
)

// MaxPods is how many pods of one pool are counted at most.
const MaxPods = MaxGateways

// SpacePool is the pool as its pods are counted in a cluster; nil: there are none to be counted, as it has no Site, or one process runs the Site.
func (v GatewayView) SpacePool() *ceiling.Pool {
	if v.Site == nil || standalone(v.Gateway) {
		return nil
	}
	p := Pool{Gateway: v.Gateway, Site: v.Site, Image: v.Image, Apart: v.PodsApart()}
	return &ceiling.Pool{Name: v.Gateway.Name, Namespace: v.Gateway.Namespace, Selector: PodLabels(v.Gateway.Name),
		Template: *applied[corev1.PodTemplateSpec](p.podTemplate()), Claim: applied[corev1.PersistentVolumeClaim](p.volumeClaim())}
}

// SpacePool is GatewayView.SpacePool of a FeedServer.
func (v FeedServerView) SpacePool() *ceiling.Pool {
	if v.Site == nil || standalone(v.Server) {
		return nil
	}
	s := FeedServer{SiteProgram: FeedServerOf(v.Site, v.Server), Server: v.Server}
	return &ceiling.Pool{Name: s.Name(), Namespace: v.Server.Namespace, Selector: s.Selector(),
		Template: *applied[corev1.PodTemplateSpec](s.deployment(0, s.podSpec(feedDrain, s.mounts(), s.container())).Spec.Template)}
}
