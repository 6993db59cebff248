// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// mirrorWorld is what a test's .in.yaml holds of MirrorPartners.
type mirrorWorld struct {
	MirrorPartners []map[string]any  `json:"mirrorPartners"`
	CronJobs       []batchv1.CronJob `json:"cronJobs"`
	Jobs           []batchv1.Job     `json:"jobs"`
	// MirrorReports by partner.
	MirrorReports map[string][]plan.MirrorReport `json:"mirrorReports"`
	// Asked are runs that a person begins, by partner.
	Asked map[string]askedRun `json:"asked"`
}

// askedRun is a request for a run.
type askedRun struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	VerifyOnly bool      `json:"verifyOnly"`
	Force      bool      `json:"force"`
}

// mirrorsPlanned is what a test's .out.yaml holds of MirrorPartners.
type mirrorsPlanned struct {
	MirrorPartners map[string]v1alpha1.MirrorPartnerStatus `json:"mirrorPartners,omitempty"`
	// MirrorObjects by partner; Leftovers are those that go, as kind and name, and Forgotten the runs whose reports do.
	MirrorObjects map[string][]workload.Object `json:"mirrorObjects,omitempty"`
	Leftovers     map[string][]string          `json:"leftovers,omitempty"`
	Forgotten     map[string][]string          `json:"forgotten,omitempty"`
	// Halts by partner: what its objects must hold whatever else is amiss.
	Halts map[string][]workload.Object `json:"halts,omitempty"`
	// ManualRuns are the Jobs of requested runs, or why there is none.
	ManualRuns map[string]any `json:"manualRuns,omitempty"`
}

func newMirrorsPlanned() mirrorsPlanned {
	return mirrorsPlanned{MirrorPartners: map[string]v1alpha1.MirrorPartnerStatus{}, MirrorObjects: map[string][]workload.Object{},
		Leftovers: map[string][]string{}, Forgotten: map[string][]string{}, Halts: map[string][]workload.Object{}, ManualRuns: map[string]any{}}
}

// add says whether it knows the part.
func (p *mirrorsPlanned) add(part string, from mirrorsPlanned) bool {
	switch part {
	case "mirrorPartners":
		p.MirrorPartners = from.MirrorPartners
	case "forgotten":
		p.Forgotten = from.Forgotten
	case "halts":
		p.Halts = from.Halts
	case "mirrorObjects":
		p.MirrorObjects, p.Leftovers = from.MirrorObjects, from.Leftovers
	case "manualRuns":
		p.ManualRuns = from.ManualRuns
	default:
		return false
	}
	return true
}

// planMirrors plans the MirrorPartners of a Site, which is nil where it does not exist.
func (w world) planMirrors(t *testing.T, out *planned, in *entries.Input, accepted finding.Finding, registry observed.RegistryState) {
	var others []v1alpha1.MirrorPartner
	if in.Site != nil {
		others = keep(load[v1alpha1.MirrorPartner](t, "mirrorpartners", w.MirrorPartners), func(m v1alpha1.MirrorPartner) bool { return m.Spec.SiteRef.Name != in.Site.Name })
	}
	listed := accept.Listed(in.Instruments, in.Verdicts, registry.Entries)
	in.MirrorsAre = accept.Mirrors(in.Site, accepted, in.Mirrors, others, in.Instruments, listed)
	for i := range in.Mirrors {
		m := &in.Mirrors[i]
		view := plan.MirrorView{Now: w.Now, Mirror: m, Site: in.Site, Verdict: in.MirrorsAre[m.Name], Bus: w.Bus[m.Spec.SiteRef.Name], Secrets: in.Secrets,
			Reports: w.MirrorReports[m.Name]}
		view.Deployment = w.deployment(workload.MirrorName(m.Name))
		for k := range w.CronJobs {
			if w.CronJobs[k].Name == workload.MirrorName(m.Name) {
				view.CronJob = &w.CronJobs[k]
			}
		}
		view.Jobs = keep(w.Jobs, func(j batchv1.Job) bool { return j.Labels[workload.LabelInstance] == m.Name })
		view.Pods = keep(w.Pods, func(p corev1.Pod) bool {
			return p.Labels[workload.LabelName] == workload.MirrorProgram && p.Labels[workload.LabelInstance] == m.Name
		})
		if entry, exists := registry.Mirrors[m.Name]; exists {
			view.Entry = &entry
		}
		program := workload.MirrorOf(in.Site, m)
		program.Image, program.Secrets = "substorm/mirror-jobs:dev", in.Secrets
		if in.Site != nil && in.Site.Spec.JetStream.AccountKeySecretRef != nil {
			user := bus.MirrorUser(in.Site, m)
			out.Users["mirror/"+m.Name] = user
			view.Credentials = w.credentialsOf(out, "mirror/"+m.Name, user, m.Annotations)
			program.Permissions = user.Hash("AACCOUNT", "AACCOUNT")
		}
		status, wait := plan.MirrorStatus(view)
		out.MirrorPartners[m.Name] = status
		out.requeue("mirrorPartners", m.Name, wait)
		if runs := plan.MirrorReportsToForget(view.Reports, view.Jobs, w.Now); len(runs) > 0 {
			out.Forgotten[m.Name] = runs
		}
		if halts := workload.MirrorHalts(m); len(halts) > 0 {
			out.Halts[m.Name] = halts
		}
		for _, o := range workload.MirrorLeftovers(in.Site, m) {
			out.Leftovers[m.Name] = append(out.Leftovers[m.Name], o.Kind+" "+o.Name)
		}
		if view.Verdict.OK() {
			out.MirrorObjects[m.Name] = workload.Mirror{SiteProgram: program, Partner: m}.Objects()
		}
		if asked, is := w.Asked[m.Name]; is {
			out.ManualRuns[m.Name] = w.manualRun(t, m, asked, out.MirrorObjects[m.Name])
		}
	}
}

// manualRun is the Job of a requested run, made from the template of the regular runs.
func (w world) manualRun(t *testing.T, m *v1alpha1.MirrorPartner, asked askedRun, objects []workload.Object) any {
	t.Helper()
	job, err := workload.ManualMirrorJob(m, podTemplateOf(t, objects), workload.ManualRun{From: asked.From, To: asked.To, VerifyOnly: asked.VerifyOnly, Force: asked.Force})
	if err != nil {
		return err.Error()
	}
	return job
}

// podTemplateOf returns the template of the CronJob or Deployment among objects, as the API server has it.
func podTemplateOf(t *testing.T, objects []workload.Object) *corev1.PodTemplateSpec {
	t.Helper()
	for _, o := range objects {
		data := must(json.Marshal(o.Apply))(t)
		switch o.Kind {
		case "CronJob":
			var c batchv1.CronJob
			must(0, json.Unmarshal(data, &c))(t)
			return &c.Spec.JobTemplate.Spec.Template
		case "Deployment":
			var d appsv1.Deployment
			must(0, json.Unmarshal(data, &d))(t)
			return &d.Spec.Template
		}
	}
	return &corev1.PodTemplateSpec{}
}
