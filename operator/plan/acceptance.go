// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Verdict says whether an Instrument is accepted, and by which pool.
type Verdict struct {
	Finding
	// Gateway is the IngestGateway that receives; empty where none was found.
	Gateway string `json:"gateway,omitempty"`
	// Absent: something that the Instrument names is not there (rather than a
	// contradiction). What is programmed stays programmed, but for tokens that are gone.
	Absent bool `json:"absent,omitempty"`
}

// Accept judges all Instruments of one Site, by name. The older of two that
// contradict each other wins. Site is nil where it doesn't exist, and accepted
// what was found about it. Secrets are those that exist of TokenSecrets.
func Accept(site *v1alpha1.Site, accepted Finding, gateways []v1alpha1.IngestGateway, instruments []v1alpha1.Instrument, secrets Secrets) map[string]Verdict {
	byAge := make([]*v1alpha1.Instrument, len(instruments))
	for i := range instruments {
		byAge[i] = &instruments[i]
	}
	slices.SortFunc(byAge, func(a, b *v1alpha1.Instrument) int { return olderFirst(a, b) })

	verdicts := make(map[string]Verdict, len(instruments))
	held := claims{}
	for _, inst := range byAge {
		in := application{site: site, siteAccepted: accepted, gateways: gateways, instrument: inst, held: held, secrets: secrets}
		in.gateway = chooseGateway(gateways, inst)
		v := in.judge()
		verdicts[inst.Name] = v
		if inst.Spec.State == v1alpha1.InstrumentRetired {
			continue
		}
		switch {
		case v.OK(), v.Reason == v1alpha1.ReasonUnreadable && in.gateway != nil:
			held.add(in.gateway.Name, inst)
		case v.Reason == v1alpha1.ReasonGatewayAmbiguous:
			// One of the pools may still receive for it.
			for i := range gateways {
				held.add(gateways[i].Name, inst)
			}
		}
	}
	return verdicts
}

// olderFirst orders by creation, then by namespace and name.
func olderFirst(a, b metav1.Object) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// chooseGateway returns the pool that the Instrument names, or the Site's only one.
func chooseGateway(gateways []v1alpha1.IngestGateway, inst *v1alpha1.Instrument) *v1alpha1.IngestGateway {
	if ref := inst.Spec.GatewayRef; ref != nil {
		for i := range gateways {
			if gateways[i].Name == ref.Name {
				return &gateways[i]
			}
		}
		return nil
	}
	if len(gateways) == 1 {
		return &gateways[0]
	}
	return nil
}

// application is one Instrument that wants to be accepted.
type application struct {
	site         *v1alpha1.Site
	siteAccepted Finding
	gateways     []v1alpha1.IngestGateway
	instrument   *v1alpha1.Instrument
	gateway      *v1alpha1.IngestGateway
	held         claims
	secrets      Secrets
}

// What may be absent, and what may be a contradiction.
var (
	absences = []check[application]{
		instrumentIsUnreadable,
		siteDoesNotExist,
		siteIsNotAccepted,
		gatewayDoesNotExist,
		gatewayIsAmbiguous,
		gatewayIsUnreadable,
		tokenSecretIsNotLabeled,
		tokenDoesNotExist,
		tokenIsGuessable,
	}
	contradictions = []check[application]{
		sourceIsNoCIDR,
		portIsOutOfRange,
		tlsIsNotConfigured,
		listenersOverlap,
		portIsTaken,
	}
)

func (in application) judge() Verdict {
	v := Verdict{}
	if in.gateway != nil {
		v.Gateway = in.gateway.Name
	}
	for _, look := range absences {
		if f, found := look(in); found {
			v.Finding, v.Absent = f, true
			return v
		}
	}
	v.Finding = first(in, contradictions, good(v1alpha1.ReasonAccepted, fmt.Sprintf("IngestGateway %q receives for it", v.Gateway)))
	return v
}

func siteDoesNotExist(in application) (Finding, bool) {
	return bad(v1alpha1.ReasonSiteNotFound, fmt.Sprintf(
		"Site %q does not exist in this namespace: create it, or name another one in spec.siteRef",
		in.instrument.Spec.SiteRef.Name)), in.site == nil
}

func siteIsNotAccepted(in application) (Finding, bool) {
	if in.siteAccepted.Status != metav1.ConditionFalse {
		return Finding{}, false
	}
	return bad(v1alpha1.ReasonSiteNotReady, fmt.Sprintf("Site %q is not accepted: %s",
		in.site.Name, in.siteAccepted.Message)), true
}

func gatewayDoesNotExist(in application) (Finding, bool) {
	ref := in.instrument.Spec.GatewayRef
	switch {
	case in.gateway != nil:
		return Finding{}, false
	case ref != nil:
		return bad(v1alpha1.ReasonGatewayNotFound, fmt.Sprintf(
			"Site %q has no IngestGateway %q: create it, or name another one in spec.gatewayRef", in.site.Name, ref.Name)), true
	default:
		return bad(v1alpha1.ReasonGatewayNotFound, fmt.Sprintf(
			"Site %q has no IngestGateway: create one whose spec.siteRef names it", in.site.Name)), len(in.gateways) == 0
	}
}

func gatewayIsAmbiguous(in application) (Finding, bool) {
	if in.gateway != nil {
		return Finding{}, false
	}
	return bad(v1alpha1.ReasonGatewayAmbiguous, fmt.Sprintf(
		"Site %q has %d IngestGateways (%s): name one in spec.gatewayRef; until then a pool that received for it goes on",
		in.site.Name, len(in.gateways), names(in.gateways))), true
}

// sourceIsNoCIDR keeps what cannot be read from meaning "any address". The API
// server refuses such a source; one that an older API server let in stays here.
func sourceIsNoCIDR(in application) (Finding, bool) {
	for i := range in.instrument.Spec.Listeners {
		for _, s := range in.instrument.Spec.Listeners[i].Sources {
			if _, err := netip.ParsePrefix(s); err != nil {
				return bad(v1alpha1.ReasonInvalidSource, fmt.Sprintf(
					"spec.listeners[%d] has the source %q: write a CIDR such as 192.0.2.7/32", i, s)), true
			}
		}
	}
	return Finding{}, false
}

func portIsOutOfRange(in application) (Finding, bool) {
	ports := in.gateway.Spec.Ports
	for i := range in.instrument.Spec.Listeners {
		if p := port(&in.instrument.Spec.Listeners[i]); p < ports.First || p > ports.Last {
			return bad(v1alpha1.ReasonPortOutOfRange, fmt.Sprintf(
				"spec.listeners[%d] asks for %s port %d, and IngestGateway %q has the ports %d-%d: choose one of these, or change the pool's spec.ports",
				i, in.instrument.Spec.Listeners[i].Type, p, in.gateway.Name, ports.First, ports.Last)), true
		}
	}
	return Finding{}, false
}

func listenersOverlap(in application) (Finding, bool) {
	own := claims{}
	for i := range in.instrument.Spec.Listeners {
		listener := &in.instrument.Spec.Listeners[i]
		other, found := own.holder(in.gateway.Name, in.instrument.Name, listener)
		switch {
		case found && other.listener != listener.Type:
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"spec.listeners[%d] of type %s and an earlier listener of type %s share port %d: give one of them another port",
				i, listener.Type, other.listener, port(listener))), true
		case found && other.encryptsOtherwise(listener):
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"spec.listeners[%d] with tls %s and an earlier listener with tls %s share HTTP port %d: give one of them another port",
				i, listenerTLS(listener), other.tls, port(listener))), true
		case found:
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"spec.listeners[%d] and an earlier listener share %s port %d for %s: give one of them another port or other sources",
				i, listener.Type, port(listener), other.text())), true
		}
		own.addListener(in.gateway.Name, in.instrument.Name, listener)
	}
	return Finding{}, false
}

func portIsTaken(in application) (Finding, bool) {
	for i := range in.instrument.Spec.Listeners {
		listener := &in.instrument.Spec.Listeners[i]
		other, found := in.held.holder(in.gateway.Name, in.instrument.Name, listener)
		if !found || in.instrument.Spec.State == v1alpha1.InstrumentRetired {
			continue
		}
		if other.encryptsOtherwise(listener) {
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"HTTP port %d of IngestGateway %q is, for the older Instrument %q, one with tls %s, and cannot have tls %s too: choose another port in spec.listeners[%d], or the same tls",
				port(listener), in.gateway.Name, other.instrument, other.tls, listenerTLS(listener), i)), true
		}
		if other.listener != listener.Type {
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"port %d of IngestGateway %q belongs, for %s, to the older Instrument %q, and cannot take %s too: choose another port in spec.listeners[%d]",
				port(listener), in.gateway.Name, other.listener, other.instrument, listener.Type, i)), true
		}
		return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"%s port %d of IngestGateway %q belongs, for %s, to the older Instrument %q: choose another port in spec.listeners[%d], or sources that do not overlap%s",
			listener.Type, port(listener), in.gateway.Name, other.text(), other.instrument, i, otherIdentity(listener))), true
	}
	return Finding{}, false
}

// claims are the ports that Instruments hold.
type claims map[claimedPort][]claim

type claimedPort struct {
	gateway string
	udp     bool
	port    int32
}

type claim struct {
	instrument string
	listener   v1alpha1.ListenerType
	sources    []string
	// prefixes are the sources; none means every address.
	prefixes []netip.Prefix
	// certificates are the names of which the sender's bears one; none means any.
	certificates []string
	tls          v1alpha1.ListenerTLS
}

func (c claims) add(gateway string, inst *v1alpha1.Instrument) {
	for i := range inst.Spec.Listeners {
		c.addListener(gateway, inst.Name, &inst.Spec.Listeners[i])
	}
}

func (c claims) addListener(gateway, instrument string, listener *v1alpha1.Listener) {
	at := portOf(gateway, listener)
	c[at] = append(c[at], claim{instrument, listener.Type, listener.Sources, prefixes(listener.Sources), certificateNames(listener), listenerTLS(listener)})
}

func portOf(gateway string, listener *v1alpha1.Listener) claimedPort {
	return claimedPort{gateway, listener.Type == v1alpha1.ListenerUDP, port(listener)}
}

// holder returns who holds the listener's port for an address, and a certificate, that
// the listener of an instrument names too. A port carries either TCP or HTTP, whose
// paths tell instruments apart, and HTTP either plain or over TLS.
func (c claims) holder(gateway, instrument string, listener *v1alpha1.Listener) (claim, bool) {
	wanted := prefixes(listener.Sources)
	for _, other := range c[portOf(gateway, listener)] {
		switch {
		case other.listener != listener.Type:
			return other, true
		case other.encryptsOtherwise(listener):
			return other, true
		case listener.Type == v1alpha1.ListenerHTTP && other.instrument != instrument:
		case overlap(wanted, other.prefixes) && !other.apart(listener):
			return other, true
		}
	}
	return claim{}, false
}

func (c claim) text() string {
	if len(c.sources) == 0 {
		return "any source"
	}
	return "the sources " + strings.Join(c.sources, ", ")
}

func overlap(a, b []netip.Prefix) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return slices.ContainsFunc(b, p.Overlaps) })
}

// prefixes reads CIDRs, and skips what sourceIsNoCIDR finds. IPv4 mapped into
// IPv6 is read as IPv4.
func prefixes(sources []string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range sources {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			continue
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		all = append(all, p.Masked())
	}
	return all
}

// port returns the port of a listener, 0 where it has none.
func port(listener *v1alpha1.Listener) int32 {
	switch {
	case listener.TCP != nil:
		return listener.TCP.Port
	case listener.UDP != nil:
		return listener.UDP.Port
	case listener.HTTP != nil:
		return listener.HTTP.Port
	default:
		return 0
	}
}

func names(gateways []v1alpha1.IngestGateway) string {
	all := make([]string, len(gateways))
	for i := range gateways {
		all[i] = gateways[i].Name
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
