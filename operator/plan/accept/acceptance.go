// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Verdict says whether an Instrument is accepted, and by which pool.
type Verdict struct {
	finding.Finding
	// Gateway is the IngestGateway that receives; empty if none was found, or none is needed.
	Gateway string `json:"gateway,omitempty"`
	// Absent: something that the Instrument names is not there (rather than a contradiction).
	// The programmed entry stays, except for tokens that are gone.
	Absent bool `json:"absent,omitempty"`
	// Refused are the listeners that something is wrong with, by name. Finding is the finding of the first.
	Refused map[string]finding.Finding `json:"refused,omitempty"`
	// Received: some listeners of an Instrument that is not accepted are accepted, and gateways receive there.
	Received bool `json:"received,omitempty"`
}

// Stands returns whether the registry has, or gets, an entry of the Instrument as it is now: all of it, or the listeners that are accepted.
func (v Verdict) Stands() bool { return v.OK() || v.Received }

// refuse notes what is wrong with a listener.
func (v *Verdict) refuse(listener string, f finding.Finding) {
	if v.Refused == nil {
		v.Refused, v.Finding = map[string]finding.Finding{}, f
	}
	v.Refused[listener] = f
}

// AcceptedListeners are the listeners of an Instrument that are not refused.
func (v Verdict) AcceptedListeners(inst *v1alpha1.Instrument) []v1alpha1.Listener {
	if len(v.Refused) == 0 {
		return inst.Spec.Listeners
	}
	var all []v1alpha1.Listener
	for i := range inst.Spec.Listeners {
		if _, refused := v.Refused[inst.Spec.Listeners[i].Name]; !refused {
			all = append(all, inst.Spec.Listeners[i])
		}
	}
	return all
}

// Instruments judges all Instruments of one Site, by name. The older of two that contradict each other wins. Site is nil if it does not
// exist, and accepted is the finding about it. Secrets are the existing ones of TokenSecrets.
func Instruments(site *v1alpha1.Site, accepted finding.Finding, gateways []v1alpha1.IngestGateway, instruments []v1alpha1.Instrument, secrets workload.Secrets) map[string]Verdict {
	byAge := make([]*v1alpha1.Instrument, len(instruments))
	for i := range instruments {
		byAge[i] = &instruments[i]
	}
	slices.SortFunc(byAge, func(a, b *v1alpha1.Instrument) int { return OlderFirst(a, b) })

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
		case in.gateway == nil && v.Reason != v1alpha1.ReasonGatewayAmbiguous:
		case v.Stands(), v.Reason == v1alpha1.ReasonUnreadable:
			held.add(in.gateway.Name, inst.Name, v.AcceptedListeners(inst))
		case v.Reason == v1alpha1.ReasonGatewayAmbiguous:
			// One of the pools may still receive for it.
			for i := range gateways {
				held.add(gateways[i].Name, inst.Name, inst.Spec.Listeners)
			}
		}
	}
	return verdicts
}

// OlderFirst orders by creation, then by namespace and name.
func OlderFirst(a, b metav1.Object) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// chooseGateway returns the pool that the Instrument names, or the Site's only one; nil where
// it has no listeners.
func chooseGateway(gateways []v1alpha1.IngestGateway, inst *v1alpha1.Instrument) *v1alpha1.IngestGateway {
	if len(inst.Spec.Listeners) == 0 {
		return nil
	}
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
	siteAccepted finding.Finding
	gateways     []v1alpha1.IngestGateway
	instrument   *v1alpha1.Instrument
	gateway      *v1alpha1.IngestGateway
	held         claims
	secrets      workload.Secrets
}

// listening is a listener of an Instrument that wants to be accepted.
type listening struct {
	application
	listener *v1alpha1.Listener
	// own are the Instrument's listeners before this one.
	own claims
}

// The checks that find something absent, and those that find a contradiction.
var (
	absences = []finding.Check[application]{
		instrumentIsUnreadable,
		siteDoesNotExist,
		siteIsNotAccepted,
		gatewayDoesNotExist,
		gatewayIsAmbiguous,
		gatewayIsUnreadable,
	}
	listenerAbsences = []finding.Check[listening]{
		tokenSecretIsNotLabeled,
		tokenDoesNotExist,
		tokenIsGuessable,
	}
	listenerContradictions = []finding.Check[listening]{
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
	if len(in.instrument.Spec.Listeners) == 0 {
		v.Finding = finding.Good(v1alpha1.ReasonAccepted, "it has no listeners, and needs no IngestGateway: its data is imported")
		return v
	}
	v.Finding = finding.Good(v1alpha1.ReasonAccepted, fmt.Sprintf("IngestGateway %q receives for it", v.Gateway))
	if in.judgeListeners(&v, listenerAbsences); len(v.Refused) > 0 {
		v.Absent = true
		return v
	}
	in.judgeListeners(&v, listenerContradictions)
	v.Received = len(v.Refused) > 0 && len(v.Refused) < len(in.instrument.Spec.Listeners)
	return v
}

// judgeListeners notes the first problem of each listener.
func (in application) judgeListeners(v *Verdict, checks []finding.Check[listening]) {
	own := claims{}
	for i := range in.instrument.Spec.Listeners {
		l := listening{in, &in.instrument.Spec.Listeners[i], own}
		if f := finding.First(l, checks, finding.Good(v1alpha1.ReasonAccepted, "")); !f.OK() {
			v.refuse(l.listener.Name, f)
			continue
		}
		own.addListener(in.gateway.Name, in.instrument.Name, l.listener)
	}
}

func siteDoesNotExist(in application) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonSiteNotFound, fmt.Sprintf(
		"Site %q does not exist in this namespace: create it, or name another one in spec.siteRef",
		in.instrument.Spec.SiteRef.Name)), in.site == nil
}

func siteIsNotAccepted(in application) (finding.Finding, bool) {
	return SiteIsNotAccepted(in.site, in.siteAccepted)
}

// SiteIsNotAccepted finds that nothing of a Site can be served, by whether the Site is accepted.
func SiteIsNotAccepted(site *v1alpha1.Site, accepted finding.Finding) (finding.Finding, bool) {
	if accepted.Status != metav1.ConditionFalse {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonSiteNotReady, fmt.Sprintf("Site %q is not accepted: %s", site.Name, accepted.Message)), true
}

func gatewayDoesNotExist(in application) (finding.Finding, bool) {
	ref := in.instrument.Spec.GatewayRef
	switch {
	case in.gateway != nil || len(in.instrument.Spec.Listeners) == 0:
		return finding.Finding{}, false
	case ref != nil:
		return finding.Bad(v1alpha1.ReasonGatewayNotFound, fmt.Sprintf(
			"Site %q has no IngestGateway %q: create it, or name another one in spec.gatewayRef", in.site.Name, ref.Name)), true
	default:
		return finding.Bad(v1alpha1.ReasonGatewayNotFound, fmt.Sprintf(
			"Site %q has no IngestGateway: create one whose spec.siteRef names it", in.site.Name)), len(in.gateways) == 0
	}
}

func gatewayIsAmbiguous(in application) (finding.Finding, bool) {
	if in.gateway != nil || len(in.instrument.Spec.Listeners) == 0 {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonGatewayAmbiguous, fmt.Sprintf(
		"Site %q has %d IngestGateways (%s): name one in spec.gatewayRef; until then a pool that received for it goes on",
		in.site.Name, len(in.gateways), names(in.gateways))), true
}

// field is the path of a listener in its Instrument.
func (in listening) field() string { return fmt.Sprintf("spec.listeners[name=%s]", in.listener.Name) }

// sourceIsNoCIDR keeps a source that cannot be parsed from meaning "any address". The API server refuses such a source; one that an older
// API server accepted is caught here.
func sourceIsNoCIDR(in listening) (finding.Finding, bool) {
	for _, s := range in.listener.Sources {
		if _, err := netip.ParsePrefix(s); err != nil {
			return finding.Bad(v1alpha1.ReasonInvalidSource, fmt.Sprintf(
				"%s has the source %q: write a CIDR such as 192.0.2.7/32", in.field(), s)), true
		}
	}
	return finding.Finding{}, false
}

func portIsOutOfRange(in listening) (finding.Finding, bool) {
	ports, p := in.gateway.Spec.Ports, in.listener.Port
	return finding.Bad(v1alpha1.ReasonPortOutOfRange, fmt.Sprintf(
		"%s asks for %s port %d, and IngestGateway %q has the ports %d-%d: choose one of these, or change the pool's spec.ports",
		in.field(), in.listener.Protocol, p, in.gateway.Name, ports.First, ports.Last)), p < ports.First || p > ports.Last
}

func listenersOverlap(in listening) (finding.Finding, bool) {
	listener := in.listener
	other, found := in.own.holder(in.gateway.Name, in.instrument.Name, listener)
	switch {
	case found && other.protocol != listener.Protocol:
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"%s with protocol %s and the listener %q with protocol %s share port %d: give one of them another port",
			in.field(), listener.Protocol, other.name, other.protocol, listener.Port)), true
	case found && other.encryptsOtherwise(listener):
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"%s with tlsMode %s and the listener %q with tlsMode %s share HTTP port %d: give one of them another port",
			in.field(), listener.Mode(), other.name, other.mode, listener.Port)), true
	case found:
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"%s and the listener %q share %s port %d for %s: give one of them another port or other sources",
			in.field(), other.name, listener.Protocol, listener.Port, other.text())), true
	}
	return finding.Finding{}, false
}

func portIsTaken(in listening) (finding.Finding, bool) {
	listener := in.listener
	other, found := in.held.holder(in.gateway.Name, in.instrument.Name, listener)
	switch {
	case !found || in.instrument.Spec.State == v1alpha1.InstrumentRetired:
		return finding.Finding{}, false
	case other.encryptsOtherwise(listener):
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"HTTP port %d of IngestGateway %q is, for the older Instrument %q, one with tlsMode %s, and cannot have tlsMode %s too: choose another port in %s, or the same tlsMode",
			listener.Port, in.gateway.Name, other.instrument, other.mode, listener.Mode(), in.field())), true
	case other.protocol != listener.Protocol:
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"port %d of IngestGateway %q belongs, for %s, to the older Instrument %q, and cannot take %s too: choose another port in %s",
			listener.Port, in.gateway.Name, other.protocol, other.instrument, listener.Protocol, in.field())), true
	default:
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"%s port %d of IngestGateway %q belongs, for %s, to the older Instrument %q: choose another port in %s, or sources that do not overlap%s",
			listener.Protocol, listener.Port, in.gateway.Name, other.text(), other.instrument, in.field(), otherIdentity(listener))), true
	}
}

// claims are the ports that Instruments hold.
type claims map[claimedPort][]claim

type claimedPort struct {
	gateway string
	udp     bool
	port    int32
}

type claim struct {
	instrument, name string
	protocol         v1alpha1.ListenerProtocol
	sources          []string
	// prefixes are the sources; none means every address.
	prefixes []netip.Prefix
	// certificates are names, one of which the sender's certificate must have; none means any.
	certificates []string
	mode         v1alpha1.TLSMode
}

func (c claims) add(gateway, instrument string, listeners []v1alpha1.Listener) {
	for i := range listeners {
		c.addListener(gateway, instrument, &listeners[i])
	}
}

func (c claims) addListener(gateway, instrument string, listener *v1alpha1.Listener) {
	at := portOf(gateway, listener)
	c[at] = append(c[at], claim{instrument, listener.Name, listener.Protocol, listener.Sources, Prefixes(listener.Sources), CertificateNames(listener), listener.Mode()})
}

func portOf(gateway string, listener *v1alpha1.Listener) claimedPort {
	return claimedPort{gateway, listener.Protocol == v1alpha1.ListenerUDP, listener.Port}
}

// holder returns who holds the listener's port for an address, and a certificate, that the listener of an instrument names too. A port
// carries either TCP or HTTP, whose paths distinguish instruments, and HTTP either plain or over TLS.
func (c claims) holder(gateway, instrument string, listener *v1alpha1.Listener) (claim, bool) {
	wanted := Prefixes(listener.Sources)
	for _, other := range c[portOf(gateway, listener)] {
		switch {
		case other.protocol != listener.Protocol:
			return other, true
		case other.encryptsOtherwise(listener):
			return other, true
		case listener.Protocol == v1alpha1.ListenerHTTP && other.instrument != instrument:
		case overlap(wanted, other.prefixes) && !other.isToldApart(listener):
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

// Prefixes reads CIDRs, and skips what sourceIsNoCIDR finds. IPv4 mapped into
// IPv6 is read as IPv4.
func Prefixes(sources []string) []netip.Prefix {
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

func names(gateways []v1alpha1.IngestGateway) string {
	all := make([]string, len(gateways))
	for i := range gateways {
		all[i] = gateways[i].Name
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
