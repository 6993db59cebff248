// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// maxAddresses is how many there may be of a listener.
const maxAddresses = 64

// listeners are where the instrument can send, and whether gateways receive there. Programmed is the Instrument's condition.
func (v View) listeners(programmed finding.Finding) []v1alpha1.ListenerStatus {
	var all []v1alpha1.ListenerStatus
	for i := range v.Instrument.Spec.Listeners {
		listener := &v.Instrument.Spec.Listeners[i]
		accepted := v.listenerAccepted(listener.Name)
		was := listenerStatus(v.Instrument, listener.Name)
		c := finding.Conditions{Now: v.Now, Generation: v.Instrument.Generation, Old: was.Conditions}
		c.Set(v1alpha1.ConditionAccepted, accepted)
		if !accepted.OK() && !v.hasListener(listener.Name) {
			c.Set(v1alpha1.ConditionProgrammed, finding.Bad(accepted.Reason, accepted.Message))
		} else {
			c.Set(v1alpha1.ConditionProgrammed, programmed)
		}
		all = append(all, v1alpha1.ListenerStatus{Name: listener.Name, Conditions: c.All, Addresses: v.addresses(listener, accepted),
			LastReceivedTime: v.lastReceivedAt(listener.Name, was.LastReceivedTime)})
	}
	return all
}

// lastReceivedAt is when data last arrived at a listener, according to the reports, or to the earlier status if reports were lost.
func (v View) lastReceivedAt(name string, was *metav1.Time) *metav1.Time {
	var last time.Time
	for _, r := range v.Reports {
		if at := r.Listeners[name]; at.After(last) {
			last = at
		}
	}
	if is := observed.Rounded(last); was == nil || is != nil && !is.Before(was) || was.After(v.Now) {
		return is
	}
	return was
}

func (v View) listenerAccepted(name string) finding.Finding {
	switch refused, is := v.Verdict.Refused[name]; {
	case is:
		return refused
	case !v.Verdict.OK() && len(v.Verdict.Refused) == 0:
		return v.Verdict.Finding
	default:
		return finding.Good(v1alpha1.ReasonAccepted, fmt.Sprintf("IngestGateway %q receives there", v.Verdict.Gateway))
	}
}

// hasListener returns whether a listener is in the entry that gateways read.
func (v View) hasListener(name string) bool {
	return v.Entry != nil && slices.ContainsFunc(v.Entry.Listeners, func(l wire.ListenerEntry) bool { return l.Name == name })
}

// listenerStatus returns the earlier status of a listener.
func listenerStatus(inst *v1alpha1.Instrument, name string) v1alpha1.ListenerStatus {
	for _, l := range inst.Status.Listeners {
		if l.Name == name {
			return l
		}
	}
	return v1alpha1.ListenerStatus{}
}

// addresses are where the instrument can send of a listener.
func (v View) addresses(listener *v1alpha1.Listener, accepted finding.Finding) []v1alpha1.ListenerAddress {
	if !accepted.OK() || v.Pool == nil || v.Instrument.Spec.State == v1alpha1.InstrumentRetired {
		return nil
	}
	var all []v1alpha1.ListenerAddress
	hosts := v.hosts(listener.Protocol)
	for _, host := range hosts[:min(len(hosts), maxAddresses)] {
		all = append(all, v.address(listener, net.JoinHostPort(host, strconv.Itoa(int(listener.Port)))))
	}
	return all
}

func (v View) address(listener *v1alpha1.Listener, host string) v1alpha1.ListenerAddress {
	a := v1alpha1.ListenerAddress{Address: host}
	if listener.Protocol == v1alpha1.ListenerHTTP {
		scheme := "http://"
		if listener.Mode() != v1alpha1.TLSNone {
			scheme = "https://"
		}
		a.URL = scheme + host + wire.UploadPath(v.Instrument.Name)
	}
	return a
}

func (v View) hosts(listener v1alpha1.ListenerProtocol) []string {
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
func (v View) nodeHosts() []string {
	var hosts []string
	for i := range v.Pods {
		if pod := &v.Pods[i]; workload.PodReady(pod) && pod.Status.HostIP != "" {
			hosts = append(hosts, pod.Status.HostIP)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func (v View) balancerHosts(listener v1alpha1.ListenerProtocol) []string {
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
