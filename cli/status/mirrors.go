// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// Mirror is one line about a MirrorPartner.
type Mirror struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Site      string                   `json:"site"`
	Direction v1alpha1.MirrorDirection `json:"direction"`
	Protocol  v1alpha1.MirrorProtocol  `json:"protocol"`
	Ready     metav1.ConditionStatus   `json:"ready"`
	// Reachable and Synced are the reasons of these conditions.
	Reachable string `json:"reachable"`
	Synced    string `json:"synced"`
	// Owed is what is selected and not at the other side; nil if unknown.
	Owed            *v1alpha1.MirrorOwed     `json:"owed,omitempty"`
	Progress        *v1alpha1.MirrorProgress `json:"progress,omitempty"`
	VerifiedToTime  *metav1.Time             `json:"verifiedToTime,omitempty"`
	LastSuccessTime *metav1.Time             `json:"lastSuccessTime,omitempty"`
	NextRunTime     *metav1.Time             `json:"nextRunTime,omitempty"`
}

var mirrorConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady}

func (r *Report) addMirror(m *v1alpha1.MirrorPartner) {
	r.Mirrors = append(r.Mirrors, Mirror{
		Namespace: m.Namespace, Name: m.Name, Site: m.Spec.SiteRef.Name, Direction: m.Spec.Direction, Protocol: m.Spec.Protocol,
		Ready:     condition(m.Status.Conditions, v1alpha1.ConditionReady).Status,
		Reachable: condition(m.Status.Conditions, v1alpha1.ConditionReachable).Reason, Synced: condition(m.Status.Conditions, v1alpha1.ConditionSynced).Reason,
		Owed: m.Status.Owed, Progress: m.Status.Progress, VerifiedToTime: m.Status.VerifiedToTime, LastSuccessTime: m.Status.LastSuccessTime, NextRunTime: m.Status.NextRunTime,
	})
	r.problems("mirrorpartner", m, m.Status.ObservedGeneration, m.Status.Conditions, mirrorConditions)
}

func (r Report) printMirrors(w io.Writer) {
	if len(r.Mirrors) == 0 {
		return
	}
	fmt.Fprintln(w, "MIRROR\tSITE\tDIRECTION\tPROTOCOL\tREADY\tREACHABLE\tSYNCED\tOWED\tVERIFIED TO\tNOW\tNEXT RUN")
	for _, m := range r.Mirrors {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name(m.Namespace, m.Name), m.Site, m.Direction, m.Protocol, m.Ready,
			cmp.Or(m.Reachable, "-"), cmp.Or(m.Synced, "-"), m.owed(), minute(m.VerifiedToTime), r.moves(m.Progress), minute(m.NextRunTime))
	}
}

func (m *Mirror) owed() string {
	switch {
	case m.Owed == nil:
		return "-"
	case m.Owed.ObjectCount == 0:
		return "nothing"
	default:
		return fmt.Sprintf("%d objects, %s", m.Owed.ObjectCount, humanize.IBytes(uint64(max(0, m.Owed.Bytes))))
	}
}

// moves says what a run that lasts does: how much of what is to be moved it has moved, how fast, and when it ends at this rate.
func (r *Report) moves(p *v1alpha1.MirrorProgress) string {
	if p == nil {
		return "-"
	}
	parts := []string{fmt.Sprintf("%d of %d objects", p.ObjectCount, p.TotalObjectCount), humanize.IBytes(uint64(max(0, p.BytesPerSecond))) + "/s"}
	if p.EndTime != nil && p.EndTime.After(r.now) {
		parts = append(parts, "ends in "+strings.TrimSpace(humanize.RelTime(r.now, p.EndTime.Time, "", "")))
	}
	return strings.Join(parts, ", ")
}

func minute(at *metav1.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04Z")
}

// readMirrorReports returns what runs of a Site's MirrorPartners last reported, by partner.
func readMirrorReports(ctx context.Context, js jetstream.JetStream, code string) (map[string][]plan.MirrorReport, error) {
	reports := map[string][]plan.MirrorReport{}
	err := backend.Entries(ctx, js, wire.StatusBucket(code), wire.MirrorStatusKey("*", "*"), func(e backend.Entry) error {
		partner, run, ok := wire.ParseMirrorStatusKey(e.Key)
		if !ok {
			return nil
		}
		status, err := wire.Decode[wire.MirrorStatus](e.Data)
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key, err)
		}
		status.Run = run
		reports[partner] = append(reports[partner], plan.MirrorReport{MirrorStatus: status, Seen: e.Time})
		return nil
	})
	return reports, err
}

// refreshMirrors brings the figures of a Site's MirrorPartners up to date.
func refreshMirrors(ctx context.Context, js jetstream.JetStream, site *v1alpha1.Site, mirrors []v1alpha1.MirrorPartner, now time.Time) error {
	reports, err := readMirrorReports(ctx, js, site.Spec.Code)
	if err != nil {
		return err
	}
	for i := range mirrors {
		if m := &mirrors[i]; m.Namespace == site.Namespace && m.Spec.SiteRef.Name == site.Name {
			plan.MirrorFigures(m, reports[m.Name], now)
		}
	}
	return nil
}
