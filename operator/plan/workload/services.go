// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
)

// podsService is the name of the headless Service that names the pods.
func podsService(pool string) string { return pool + "-pods" }

// podsService also names the edge's port: a proxy that connects to pods finds them, and it, by the endpoints.
func (p Pool) podsService() *coreac.ServiceApplyConfiguration {
	spec := coreac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).
		WithSelector(PodLabels(p.Gateway.Name)).
		WithPorts(tcpPort("http", httpPort))
	if edge := p.Gateway.Spec.Edge; edge != nil {
		spec.WithPorts(tcpPort("edge", edge.Port))
	}
	return p.service(podsService(p.Gateway.Name)).WithSpec(spec)
}

func tcpPort(name string, port int32) *coreac.ServicePortApplyConfiguration {
	return coreac.ServicePort().WithName(name).WithProtocol(corev1.ProtocolTCP).WithPort(port).WithTargetPort(intstr.FromInt32(port))
}

// dataServices carry the senders' data: every port of the range from the beginning, so that a new port needs no change here. TCP and UDP
// share one Service, since a node port belongs to one Service whatever its protocol; load balancers that mix protocols are rare, so those
// get one for each.
func (p Pool) dataServices() []*coreac.ServiceApplyConfiguration {
	name := p.Gateway.Name
	if p.Gateway.Spec.Service.Type == corev1.ServiceTypeLoadBalancer {
		return []*coreac.ServiceApplyConfiguration{
			p.dataService(name+"-tcp", corev1.ProtocolTCP),
			p.dataService(name+"-udp", corev1.ProtocolUDP),
		}
	}
	return []*coreac.ServiceApplyConfiguration{p.dataService(name, corev1.ProtocolTCP, corev1.ProtocolUDP)}
}

func (p Pool) dataService(name string, protocols ...corev1.Protocol) *coreac.ServiceApplyConfiguration {
	svc := &p.Gateway.Spec.Service
	spec := coreac.ServiceSpec().WithType(svc.Type).WithSelector(PodLabels(p.Gateway.Name))
	if svc.Type != corev1.ServiceTypeClusterIP {
		// Local keeps the sender's address, which distinguishes instruments.
		spec.WithExternalTrafficPolicy(corev1.ServiceExternalTrafficPolicyLocal)
	}
	for _, protocol := range protocols {
		for n := p.Gateway.Spec.Ports.First; n <= p.Gateway.Spec.Ports.Last; n++ {
			spec.WithPorts(p.dataPort(protocol, n))
		}
		if probe := p.Gateway.Spec.LinkProbe; probe != nil && protocol == corev1.ProtocolUDP {
			spec.WithPorts(p.dataPort(protocol, probe.Port).WithName("link-probe"))
		}
	}
	s := p.service(name).WithSpec(spec)
	if len(svc.Annotations) > 0 {
		s.WithAnnotations(svc.Annotations)
	}
	return s
}

func (p Pool) dataPort(protocol corev1.Protocol, n int32) *coreac.ServicePortApplyConfiguration {
	prefix := map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp-", corev1.ProtocolUDP: "udp-"}[protocol]
	port := coreac.ServicePort().
		WithName(prefix + strconv.Itoa(int(n))).
		WithProtocol(protocol).
		WithPort(n).
		WithTargetPort(intstr.FromInt32(n))
	if p.Gateway.Spec.Service.Type == corev1.ServiceTypeNodePort {
		port.WithNodePort(n)
	}
	return port
}

func (p Pool) service(name string) *coreac.ServiceApplyConfiguration {
	return coreac.Service(name, p.Gateway.Namespace).WithLabels(p.labels()).WithOwnerReferences(p.owner())
}
