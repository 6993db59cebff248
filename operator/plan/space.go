// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/ceiling"
)

// MaxPods is how many pods of one pool are counted at most.
const MaxPods = MaxGateways

// SpacePool is the pool as its pods are counted in a cluster; nil if there are none to count, because it has no Site, or because one
// process runs the Site.
func (v GatewayView) SpacePool() *ceiling.Pool {
	if v.Site == nil || finding.IsStandalone(v.Gateway) {
		return nil
	}
	p := workload.Pool{Gateway: v.Gateway, Site: v.Site, Image: v.Image, Apart: v.PodsApart()}
	return &ceiling.Pool{Name: v.Gateway.Name, Namespace: v.Gateway.Namespace, Selector: workload.PodLabels(v.Gateway.Name),
		Template: *p.Template(), Claim: p.Claim()}
}

// SpacePool is GatewayView.SpacePool of a FeedServer.
func (v FeedServerView) SpacePool() *ceiling.Pool {
	if v.Site == nil || finding.IsStandalone(v.Server) {
		return nil
	}
	s := workload.FeedServer{SiteProgram: workload.FeedServerOf(v.Site, v.Server), Server: v.Server}
	return &ceiling.Pool{Name: s.Name(), Namespace: v.Server.Namespace, Selector: s.Selector(), Template: *s.Template()}
}
