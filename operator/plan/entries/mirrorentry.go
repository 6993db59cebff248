// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"cmp"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/observed"
)

// mirrorEntries are the MirrorPartners as movers know them. One that is not accepted as it is declared keeps the entry that it has, so that
// the archive still waits for the partner. If it is suspended, the entry says so all the same: runs begin again only once it is accepted.
func (in Input) mirrorEntries(stands observed.RegistryState, next int64) map[string]wire.MirrorEntry {
	all := map[string]wire.MirrorEntry{}
	for i := range in.Mirrors {
		m := &in.Mirrors[i]
		verdict := in.MirrorsAre[m.Name]
		if was := stands.Mirrors[m.Name]; was.Partner != "" && (verdict.Absent || in.unreadable(m)) {
			if m.Spec.State == v1alpha1.MirrorSuspended && !was.Suspended && !in.unreadable(m) {
				was.Suspended, was.Revision = true, next
			}
			all[m.Name] = was
		} else if verdict.OK() && !in.unreadable(m) {
			all[m.Name] = mirrorEntry(m, verdict, next)
		}
	}
	return all
}

func sameMirror(a, b wire.MirrorEntry) bool {
	b.Revision = a.Revision
	return reflect.DeepEqual(a, b)
}

// mirrorEntry is a MirrorPartner as movers know it.
func mirrorEntry(m *v1alpha1.MirrorPartner, v accept.MirrorVerdict, revision int64) wire.MirrorEntry {
	spec := &m.Spec
	entry := wire.MirrorEntry{
		UID: string(m.UID), Generation: m.Generation, Revision: revision,
		Partner: m.Name, Direction: string(spec.Direction), Suspended: spec.State == v1alpha1.MirrorSuspended,
		HTTPS: mirrorHTTPS(spec.HTTPS), Rsync: mirrorRsync(spec.Rsync), S3: mirrorS3(spec.S3),
		Selection: mirrorSelection(&spec.Selection, v.Instruments), Limits: mirrorLimits(&spec.Limits),
		Verify: string(cmp.Or(spec.Verify.Mode, v1alpha1.MirrorVerifyDigest)), VerifyPercent: int(cmp.Or(spec.Verify.Percent, 5)),
		Prune: string(cmp.Or(spec.Prune, v1alpha1.MirrorPruneNever)), Retractions: string(cmp.Or(spec.Retractions, v1alpha1.MirrorRetractionsTombstone)),
		SafetyStopPercent: int(spec.SafetyStopPercent),
	}
	if spec.Verify.Mode == v1alpha1.MirrorVerifyNone {
		entry.VerifyPercent = 0
	}
	if s := spec.Schedule; s != nil {
		entry.Schedule = &wire.MirrorSchedule{Cron: s.Cron, TimeZone: string(s.TimeZone), StartingDeadlineMillis: Millis(s.StartingDeadline),
			Concurrency: string(cmp.Or(s.ConcurrencyPolicy, v1alpha1.MirrorForbid))}
	}
	if spec.Continuous != nil {
		entry.Continuous = &wire.MirrorContinuous{IntervalMillis: Millis(spec.Continuous.Interval)}
	}
	for _, p := range spec.Paths {
		entry.Paths = append(entry.Paths, wire.MirrorPath{Pattern: p.Pattern, Instrument: p.InstrumentRef.Name})
	}
	if spec.Layout != nil {
		entry.Template = string(spec.Layout.Template)
	}
	entry.HoldMillis = Millis(spec.HoldRetention)
	return entry
}

// Millis of a duration; 0 of none.
func Millis(d *metav1.Duration) int64 {
	if d == nil {
		return 0
	}
	return d.Milliseconds()
}

// bytesOf a quantity; 0 of none.
func bytesOf(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

func mirrorHTTPS(h *v1alpha1.MirrorHTTPS) *wire.MirrorHTTPS {
	if h == nil {
		return nil
	}
	return &wire.MirrorHTTPS{URL: strings.TrimRight(h.URL, "/"), Source: string(h.Source), Origin: h.Origin,
		Token: h.TokenSecretKeyRef != nil, TLS: mirrorTLS(h.TLS)}
}

func mirrorTLS(t *v1alpha1.TLS) *wire.MirrorTLS {
	if t == nil {
		return nil
	}
	return &wire.MirrorTLS{CA: t.CASecretRef != nil, Certificate: t.CertificateSecretRef != nil}
}

func mirrorRsync(r *v1alpha1.MirrorRsync) *wire.MirrorRsync {
	switch {
	case r == nil:
		return nil
	case r.Daemon != nil:
		return &wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: r.Daemon.Address, Module: r.Daemon.Module, Path: string(r.Daemon.Path), User: r.Daemon.User}}
	case r.SSH != nil:
		return &wire.MirrorRsync{SSH: &wire.MirrorRsyncSSH{Host: r.SSH.Host, Port: int(cmp.Or(r.SSH.Port, 22)), User: r.SSH.User, Path: r.SSH.Path}}
	default:
		return &wire.MirrorRsync{}
	}
}

func mirrorS3(s *v1alpha1.MirrorS3) *wire.MirrorS3 {
	if s == nil {
		return nil
	}
	return &wire.MirrorS3{Endpoint: strings.TrimRight(s.Endpoint, "/"), Bucket: s.Bucket, Prefix: string(s.Prefix), Region: s.Region, TLS: mirrorTLS(s.TLS)}
}

func mirrorSelection(s *v1alpha1.MirrorSelection, instruments []string) wire.MirrorSelection {
	entry := wire.MirrorSelection{Instruments: instruments, Versions: string(cmp.Or(s.Versions, v1alpha1.MirrorVersionsCurrent)),
		Embargoed: s.Embargoed == v1alpha1.MirrorEmbargoedInclude}
	if o := s.Observed; o != nil {
		entry.ObservedWithinMillis = Millis(o.Within)
		if o.FromTime != nil {
			entry.ObservedFrom = o.FromTime.UTC()
		}
		if o.ToTime != nil {
			entry.ObservedTo = o.ToTime.UTC()
		}
	}
	return entry
}

func mirrorLimits(l *v1alpha1.MirrorLimits) wire.MirrorLimits {
	entry := wire.MirrorLimits{BytesPerSecond: bytesOf(l.BytesPerSecond), Connections: int(cmp.Or(l.Connections, 8)), TimeZone: cmp.Or(string(l.TimeZone), "Etc/UTC")}
	for i := range l.Timetable {
		r := &l.Timetable[i]
		entry.Rates = append(entry.Rates, wire.MirrorRate{MirrorWindow: mirrorWindow(r.Days, r.From, r.To), BytesPerSecond: r.BytesPerSecond.Value()})
	}
	for _, w := range l.Maintenance {
		entry.Maintenance = append(entry.Maintenance, mirrorWindow(w.Days, w.From, w.To))
	}
	return entry
}

func mirrorWindow(days []v1alpha1.Weekday, from, to v1alpha1.TimeOfDay) wire.MirrorWindow {
	w := wire.MirrorWindow{From: string(from), To: string(to)}
	for _, d := range days {
		w.Days = append(w.Days, string(d))
	}
	return w
}
