// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const maxAddresses = 64

// addresses are where the instrument can send, for each listener in turn.
func (v InstrumentView) addresses() []v1alpha1.ListenerAddress {
	if !v.Verdict.OK() || v.Pool == nil || v.Instrument.Spec.State == v1alpha1.InstrumentRetired {
		return nil
	}
	var all []v1alpha1.ListenerAddress
	for i := range v.Instrument.Spec.Listeners {
		listener := &v.Instrument.Spec.Listeners[i]
		for _, host := range v.hosts(listener.Type) {
			if len(all) < maxAddresses {
				all = append(all, v.address(listener, net.JoinHostPort(host, strconv.Itoa(int(port(listener))))))
			}
		}
	}
	return all
}

func (v InstrumentView) address(listener *v1alpha1.Listener, host string) v1alpha1.ListenerAddress {
	a := v1alpha1.ListenerAddress{Type: listener.Type, Address: host}
	if listener.HTTP != nil {
		scheme := "http://"
		if t := listener.HTTP.TLS; t == v1alpha1.TLSServer || t == v1alpha1.TLSMutual {
			scheme = "https://"
		}
		a.URL = scheme + host + wire.UploadPath(v.Instrument.Name)
	}
	return a
}

func (v InstrumentView) hosts(listener v1alpha1.ListenerType) []string {
	switch v.Pool.Spec.Service.Type {
	case corev1.ServiceTypeClusterIP:
		return []string{v.Pool.Name + "." + v.Pool.Namespace + ".svc"}
	case corev1.ServiceTypeLoadBalancer:
		return v.balancerHosts(listener)
	default:
		return v.nodeHosts()
	}
}

// nodeHosts are the nodes that run a ready pod: node ports of others lead nowhere.
func (v InstrumentView) nodeHosts() []string {
	var hosts []string
	for i := range v.Pods {
		if pod := &v.Pods[i]; PodReady(pod) && pod.Status.HostIP != "" {
			hosts = append(hosts, pod.Status.HostIP)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func (v InstrumentView) balancerHosts(listener v1alpha1.ListenerType) []string {
	name := v.Pool.Name + "-tcp" // HTTP is TCP
	if listener == v1alpha1.ListenerUDP {
		name = v.Pool.Name + "-udp"
	}
	var hosts []string
	for i := range v.Services {
		if v.Services[i].Name != name {
			continue
		}
		for _, in := range v.Services[i].Status.LoadBalancer.Ingress {
			hosts = append(hosts, cmp.Or(in.Hostname, in.IP))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
