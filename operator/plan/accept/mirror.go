// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/schedule"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// MirrorVerdict says whether a MirrorPartner is accepted, and what it selects.
type MirrorVerdict struct {
	finding.Finding
	// Selected says whether it selects anything; zero where it is not accepted, and of a pull, which selects elsewhere.
	Selected finding.Finding `json:"selected,omitzero"`
	// Instruments of the entry, see wire.MirrorSelection.
	Instruments []string `json:"instruments,omitempty"`
	// Absent: its current entry stays for movers, though it is not accepted as it is declared.
	Absent bool `json:"absent,omitempty"`
}

// mirrorApplication is one MirrorPartner that wants to be accepted.
type mirrorApplication struct {
	site         *v1alpha1.Site
	siteAccepted finding.Finding
	mirror       *v1alpha1.MirrorPartner
	selector     labels.Selector
	selectorErr  error
	// selected are the Instruments that the selector matches and that gateways know.
	selected []string
	// listed are the Instruments that the registry has, or will have.
	listed map[string]bool
	// receive are the Instruments that have listeners.
	receive map[string]bool
	// taken is the older MirrorPartner that pushes to the same place; nil for none.
	taken *v1alpha1.MirrorPartner
	// pulled is the older MirrorPartner that pulls from the same Site; nil for none.
	pulled *v1alpha1.MirrorPartner
	// restricted are the selected instruments that do not let the partner read.
	restricted []string
}

// The order is that in which a person can put things right.
var mirrorChecks = []finding.Check[mirrorApplication]{
	mirrorIsUnreadable,
	mirrorHasNoSite,
	mirrorsSiteIsNotAccepted,
	mirrorsTimeZoneIsUnknown,
	mirrorsScheduleIsInvalid,
	mirrorsSelectorIsInvalid,
	mirrorsTemplateIsInvalid,
	mirrorsInstrumentIsMissing,
	mirrorsInstrumentHasListeners,
	mirrorPullsOwn,
	mirrorsOriginIsTaken,
	mirrorsPlaceIsTaken,
}

// Mirrors judges the MirrorPartners of one Site, by name. Others are those of other Sites in its namespace: two that push into one place
// conflict, no matter which Sites they belong to.
func Mirrors(site *v1alpha1.Site, accepted finding.Finding, mirrors, others []v1alpha1.MirrorPartner, instruments []v1alpha1.Instrument, listed map[string]bool) map[string]MirrorVerdict {
	verdicts := make(map[string]MirrorVerdict, len(mirrors))
	if len(mirrors) == 0 {
		return verdicts
	}
	index := indexLabels(instruments, listed)
	restricted, taken, pulled := restrictedArchives(instruments), placesTaken(slices.Concat(pointers(mirrors), pointers(others))), originsTaken(mirrors)
	receive := haveListeners(instruments)
	for i := range mirrors {
		name := mirrors[i].Name
		in := mirrorApplication{site: site, siteAccepted: accepted, mirror: &mirrors[i], listed: listed, receive: receive, taken: taken[name], pulled: pulled[name], selector: labels.Everything()}
		if asked := mirrors[i].Spec.Selection.Selector; asked != nil {
			in.selector, in.selectorErr = metav1.LabelSelectorAsSelector(asked)
		}
		if in.pushes() && in.selectorErr == nil {
			in.selected = index.selected(in.selector)
			in.restricted = in.notReadable(restricted)
		}
		f := finding.First(in, mirrorChecks, finding.Good(v1alpha1.ReasonAccepted, in.accepted()))
		v := MirrorVerdict{Finding: f, Absent: f.Reason != v1alpha1.ReasonSiteNotFound && f.Reason != v1alpha1.ReasonSiteNotReady}
		if f.OK() {
			v.Absent, v.Instruments = false, in.instruments()
			if in.pushes() {
				v.Selected = in.selects()
			}
		}
		verdicts[name] = v
	}
	return verdicts
}

// MirrorsSelectAlike is SelectAlike for MirrorPartners.
func MirrorsSelectAlike(mirrors []v1alpha1.MirrorPartner, a, b map[string]string) bool {
	for i := range mirrors {
		asked := mirrors[i].Spec.Selection.Selector
		if asked == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(asked)
		if err == nil && selector.Matches(labels.Set(a)) != selector.Matches(labels.Set(b)) {
			return false
		}
	}
	return true
}

func (in mirrorApplication) pushes() bool { return in.mirror.Spec.Direction == v1alpha1.MirrorPush }

// instruments are those of the entry.
func (in mirrorApplication) instruments() []string {
	spec := &in.mirror.Spec
	switch {
	case in.pushes() && in.selector.Empty():
		return []string{wire.AllInstruments}
	case in.pushes():
		return in.selected
	case spec.HTTPS == nil || spec.HTTPS.Source != v1alpha1.MirrorSourceSubstorm:
		return nil
	case len(spec.Selection.InstrumentNames) == 0:
		return []string{wire.AllInstruments}
	default:
		return slices.Sorted(slices.Values(spec.Selection.InstrumentNames))
	}
}

// MirrorReader is how a partner is written in spec.access.readers of an Instrument.
func MirrorReader(partner string) string { return "mirror:" + partner }

// restrictedArchives are the readers of those Instruments whose archive is restricted, by their names.
func restrictedArchives(instruments []v1alpha1.Instrument) map[string][]string {
	all := map[string][]string{}
	for i := range instruments {
		if access := &instruments[i].Spec.Access; access.Archive == v1alpha1.AccessRestricted {
			all[instruments[i].Name] = access.Readers
		}
	}
	return all
}

func (in mirrorApplication) notReadable(restricted map[string][]string) (names []string) {
	for _, name := range in.selected {
		if readers, is := restricted[name]; is && !slices.Contains(readers, MirrorReader(in.mirror.Name)) {
			names = append(names, name)
		}
	}
	return names
}

func (in mirrorApplication) accepted() string {
	if in.pushes() {
		return fmt.Sprintf("what Site %q has is pushed", in.mirror.Spec.SiteRef.Name)
	}
	return fmt.Sprintf("it is pulled into Site %q", in.mirror.Spec.SiteRef.Name)
}

// maxNamed is how many Instruments a message names.
const maxNamed = 5

func listNames(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// selects returns whether the selector matches anything that the partner may have. A partner that selects nothing runs all the same: an
// Instrument that comes later belongs to it at once.
func (in mirrorApplication) selects() finding.Finding {
	mirrored := len(in.selected) - len(in.restricted)
	closed := ""
	if len(in.restricted) > 0 {
		closed = fmt.Sprintf("; not mirrored, since access.archive is Restricted and access.readers lacks %s: %s", MirrorReader(in.mirror.Name), listNames(in.restricted))
	}
	switch {
	case mirrored > 0:
		return finding.Good(v1alpha1.ReasonSelected, fmt.Sprintf("it selects %s%s", instrumentCount(mirrored), closed))
	case len(in.selected) > 0:
		return finding.Bad(v1alpha1.ReasonSelectsNothing, "it selects nothing that the partner may have"+closed)
	case in.selector.Empty():
		return finding.Bad(v1alpha1.ReasonSelectsNothing, fmt.Sprintf("no Instrument of Site %q is accepted: what comes later is mirrored at once", in.site.Name))
	default:
		return finding.Bad(v1alpha1.ReasonSelectsNothing, fmt.Sprintf(
			"no Instrument of Site %q that is accepted has the labels %q: label some, or change spec.selection.selector; what comes later is mirrored at once",
			in.site.Name, in.selector.String()))
	}
}

func mirrorIsUnreadable(in mirrorApplication) (finding.Finding, bool) {
	problem := finding.Unreadable(in.mirror)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the MirrorPartner, and leaves its registry entry and its Jobs as they are: "+problem), problem != ""
}

func mirrorHasNoSite(in mirrorApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonSiteNotFound, fmt.Sprintf(
		"Site %q does not exist in this namespace: create it, or make a MirrorPartner that names another one", in.mirror.Spec.SiteRef.Name)), in.site == nil
}

func mirrorsSiteIsNotAccepted(in mirrorApplication) (finding.Finding, bool) {
	return SiteIsNotAccepted(in.site, in.siteAccepted)
}

func mirrorsTimeZoneIsUnknown(in mirrorApplication) (finding.Finding, bool) {
	zones := []struct{ field, name string }{{"spec.limits.timeZone", string(in.mirror.Spec.Limits.TimeZone)}}
	if s := in.mirror.Spec.Schedule; s != nil {
		zones = append(zones, struct{ field, name string }{"spec.schedule.timeZone", string(s.TimeZone)})
	}
	for _, zone := range zones {
		if _, err := schedule.ZoneOf(zone.name); err != nil {
			return finding.Bad(v1alpha1.ReasonUnknownTimeZone, fmt.Sprintf("%s is %q, and the tz database has no such time zone: name one, such as Europe/Oslo", zone.field, zone.name)), true
		}
	}
	return finding.Finding{}, false
}

func mirrorsScheduleIsInvalid(in mirrorApplication) (finding.Finding, bool) {
	s := in.mirror.Spec.Schedule
	if s == nil {
		return finding.Finding{}, false
	}
	_, err := schedule.Parse(s.Cron, string(s.TimeZone))
	return finding.Bad(v1alpha1.ReasonInvalidSchedule, fmt.Sprintf("spec.schedule.cron is %q: %v", s.Cron, err)), err != nil
}

func mirrorsSelectorIsInvalid(in mirrorApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonInvalidSelector, fmt.Sprintf("spec.selection.selector is no label selector: %v", in.selectorErr)), in.selectorErr != nil
}

func mirrorsTemplateIsInvalid(in mirrorApplication) (finding.Finding, bool) {
	layout := in.mirror.Spec.Layout
	if layout == nil {
		return finding.Finding{}, false
	}
	_, err := naming.ParseLayout(string(layout.Template))
	return finding.Bad(v1alpha1.ReasonInvalidTemplate, fmt.Sprintf("spec.layout.template cannot be used: %v", err)), err != nil
}

func mirrorsInstrumentIsMissing(in mirrorApplication) (finding.Finding, bool) {
	for _, path := range in.mirror.Spec.Paths {
		if name := path.InstrumentRef.Name; !in.listed[name] {
			return finding.Bad(v1alpha1.ReasonInstrumentNotFound, fmt.Sprintf(
				"spec.paths gives %q to Instrument %q, which Site %q does not have, or does not accept: create it, or correct spec.paths", path.Pattern, name, in.site.Name)), true
		}
	}
	return finding.Finding{}, false
}

// haveListeners are the names of those Instruments that have listeners.
func haveListeners(instruments []v1alpha1.Instrument) map[string]bool {
	all := map[string]bool{}
	for i := range instruments {
		if len(instruments[i].Spec.Listeners) > 0 {
			all[instruments[i].Name] = true
		}
	}
	return all
}

// mirrorsInstrumentHasListeners: a partner could take the names of objects that the Instrument's own senders have yet to send. An
// Instrument without listeners is declared for imported and pulled objects.
func mirrorsInstrumentHasListeners(in mirrorApplication) (finding.Finding, bool) {
	for _, path := range in.mirror.Spec.Paths {
		if name := path.InstrumentRef.Name; in.receive[name] {
			return finding.Bad(v1alpha1.ReasonInstrumentHasListeners, fmt.Sprintf(
				"spec.paths gives %q to Instrument %q, which has listeners: its senders would be refused names that the partner used before. "+
					"Declare an Instrument without listeners for what is pulled, and name it in spec.paths", path.Pattern, name)), true
		}
	}
	return finding.Finding{}, false
}
