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
		waysOverlap,
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
	for i := range in.instrument.Spec.Ways {
		for _, s := range in.instrument.Spec.Ways[i].Sources {
			if _, err := netip.ParsePrefix(s); err != nil {
				return bad(v1alpha1.ReasonInvalidSource, fmt.Sprintf(
					"spec.ways[%d] has the source %q: write a CIDR such as 192.0.2.7/32", i, s)), true
			}
		}
	}
	return Finding{}, false
}

func portIsOutOfRange(in application) (Finding, bool) {
	ports := in.gateway.Spec.Ports
	for i := range in.instrument.Spec.Ways {
		if p := port(&in.instrument.Spec.Ways[i]); p < ports.First || p > ports.Last {
			return bad(v1alpha1.ReasonPortOutOfRange, fmt.Sprintf(
				"spec.ways[%d] asks for %s port %d, and IngestGateway %q has the ports %d-%d: choose one of these, or change the pool's spec.ports",
				i, in.instrument.Spec.Ways[i].Type, p, in.gateway.Name, ports.First, ports.Last)), true
		}
	}
	return Finding{}, false
}

func waysOverlap(in application) (Finding, bool) {
	own := claims{}
	for i := range in.instrument.Spec.Ways {
		way := &in.instrument.Spec.Ways[i]
		other, found := own.holder(in.gateway.Name, in.instrument.Name, way)
		switch {
		case found && other.way != way.Type:
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"spec.ways[%d] of type %s and an earlier way of type %s share port %d: give one of them another port",
				i, way.Type, other.way, port(way))), true
		case found && other.encryptsOtherwise(way):
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"spec.ways[%d] with tls %s and an earlier way with tls %s share HTTP port %d: give one of them another port",
				i, wayTLS(way), other.tls, port(way))), true
		case found:
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"spec.ways[%d] and an earlier way share %s port %d for %s: give one of them another port or other sources",
				i, way.Type, port(way), other.text())), true
		}
		own.addWay(in.gateway.Name, in.instrument.Name, way)
	}
	return Finding{}, false
}

func portIsTaken(in application) (Finding, bool) {
	for i := range in.instrument.Spec.Ways {
		way := &in.instrument.Spec.Ways[i]
		other, found := in.held.holder(in.gateway.Name, in.instrument.Name, way)
		if !found || in.instrument.Spec.State == v1alpha1.InstrumentRetired {
			continue
		}
		if other.encryptsOtherwise(way) {
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"HTTP port %d of IngestGateway %q is, for the older Instrument %q, one with tls %s, and cannot have tls %s too: choose another port in spec.ways[%d], or the same tls",
				port(way), in.gateway.Name, other.instrument, other.tls, wayTLS(way), i)), true
		}
		if other.way != way.Type {
			return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
				"port %d of IngestGateway %q belongs, for %s, to the older Instrument %q, and cannot take %s too: choose another port in spec.ways[%d]",
				port(way), in.gateway.Name, other.way, other.instrument, way.Type, i)), true
		}
		return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"%s port %d of IngestGateway %q belongs, for %s, to the older Instrument %q: choose another port in spec.ways[%d], or sources that do not overlap%s",
			way.Type, port(way), in.gateway.Name, other.text(), other.instrument, i, otherIdentity(way))), true
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
	way        v1alpha1.WayType
	sources    []string
	// prefixes are the sources; none means every address.
	prefixes []netip.Prefix
	// certificates are the names of which the sender's bears one; none means any.
	certificates []string
	tls          v1alpha1.WayTLS
}

func (c claims) add(gateway string, inst *v1alpha1.Instrument) {
	for i := range inst.Spec.Ways {
		c.addWay(gateway, inst.Name, &inst.Spec.Ways[i])
	}
}

func (c claims) addWay(gateway, instrument string, way *v1alpha1.Way) {
	at := portOf(gateway, way)
	c[at] = append(c[at], claim{instrument, way.Type, way.Sources, prefixes(way.Sources), certificateNames(way), wayTLS(way)})
}

func portOf(gateway string, way *v1alpha1.Way) claimedPort {
	return claimedPort{gateway, way.Type == v1alpha1.WayUDP, port(way)}
}

// holder returns who holds the way's port for an address, and a certificate, that
// the way of an instrument names too. A port carries either TCP or HTTP, whose
// paths tell instruments apart, and HTTP either plain or over TLS.
func (c claims) holder(gateway, instrument string, way *v1alpha1.Way) (claim, bool) {
	wanted := prefixes(way.Sources)
	for _, other := range c[portOf(gateway, way)] {
		switch {
		case other.way != way.Type:
			return other, true
		case other.encryptsOtherwise(way):
			return other, true
		case way.Type == v1alpha1.WayHTTP && other.instrument != instrument:
		case overlap(wanted, other.prefixes) && !other.apart(way):
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

// port returns the port of a way, 0 where it has none.
func port(way *v1alpha1.Way) int32 {
	switch {
	case way.TCP != nil:
		return way.TCP.Port
	case way.UDP != nil:
		return way.UDP.Port
	case way.HTTP != nil:
		return way.HTTP.Port
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
