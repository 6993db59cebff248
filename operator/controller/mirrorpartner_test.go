// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

const rsyncWithPassword = `direction: Push, protocol: Rsync, rsync: {transport: Daemon, daemon: {address: "rsync.example.org:873", module: aurora, user: substorm, passwordSecretKeyRef: {name: uni, key: password}}}`

func (w *world) applyMirror(name, spec string) { w.t.Helper(); w.applyMirrorOf("hub", name, spec) }

func (w *world) applyMirrorOf(site, name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: %s}
spec: {siteRef: {name: %s}, %s}
`, name, site, spec))
}

// mirrorRun acts as a run of a MirrorPartner on the bus, with the credentials that the operator issued for it.
type mirrorRun struct {
	*world
	partner string
	js      jetstream.JetStream
}

func (w *world) mirrorRun(partner string) *mirrorRun {
	w.t.Helper()
	secret := w.awaitSecret(partner+"-mirror-jetstream", workload.KeyUserCreds)
	return &mirrorRun{w, partner, w.connect(secret.Data[workload.KeyUserCreds], "_INBOX_"+partner+"-mirror_hub")}
}

func (m *mirrorRun) says(status wire.MirrorStatus) {
	m.t.Helper()
	status.ReportedAt, status.Trigger = time.Now(), wire.MirrorScheduled
	data, err := wire.Encode(status)
	if err != nil {
		m.t.Fatal(err)
	}
	kv, err := m.js.KeyValue(m.t.Context(), wire.StatusBucket("hub"))
	if err == nil {
		_, err = kv.Put(m.t.Context(), wire.MirrorStatusKey(m.partner, status.Run), data)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *mirrorRun) putKV(bucket, key string) error {
	kv, err := m.js.KeyValue(m.t.Context(), bucket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	_, err = kv.Put(ctx, key, []byte("{}"))
	return err
}

// awaitMirrorEntry waits for the registry entry of a MirrorPartner.
func (w *world) awaitMirrorEntry(partner string, wanted func(wire.MirrorEntry) bool) {
	w.t.Helper()
	eventually(w.t, "the entry of mirror "+partner, func() error {
		kv, err := w.nats.JetStream(w.t).KeyValue(w.t.Context(), wire.RegistryBucket("hub"))
		if err != nil {
			return err
		}
		value, err := kv.Get(w.t.Context(), wire.RegistryMirrorKey(partner))
		if err != nil {
			return err
		}
		entry, err := wire.Decode[wire.MirrorEntry](value.Value())
		if err == nil && !wanted(entry) {
			err = fmt.Errorf("%+v", entry)
		}
		return err
	})
}

func (w *world) mirrorStatus(name string) v1alpha1.MirrorPartnerStatus {
	w.t.Helper()
	m := &v1alpha1.MirrorPartner{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, m); err != nil {
		w.t.Fatal(err)
	}
	return m.Status
}

// mirrorGauges are what the operator's metrics say of a MirrorPartner.
func (w *world) mirrorGauges(partner string, names ...string) map[string]float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			ours := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "partner" && l.GetValue() == partner })
			if ours && slices.Contains(names, f.GetName()) {
				all[f.GetName()] = m.GetGauge().GetValue()
			}
		}
	}
	return all
}

func (w *world) there(o client.Object, name string) error {
	return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, o)
}

func (w *world) awaitGone(o client.Object, name string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%T %s goes", o, name), func() error {
		if err := w.there(o, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

// TestMirrorPartnerScheduled: from a missing Secret to runs that report, and to one that is deleted.
func TestMirrorPartnerScheduled(t *testing.T) {
	w := newFeedWorld(t)
	w.applyMirror("uni", rsyncWithPassword+`, schedule: {cron: "15 2 * * *", timeZone: Europe/Oslo}`)
	w.awaits("MirrorPartner", "uni", "Ready", "False/SecretNotFound", `Secret "uni"`, "spec.rsync.daemon.passwordSecretKeyRef")
	w.awaitMirrorEntry("uni", func(e wire.MirrorEntry) bool { return e.Rsync.Daemon.User == "substorm" && e.Limits.Connections == 8 })
	if err := w.there(&batchv1.CronJob{}, "uni-mirror"); !apierrors.IsNotFound(err) {
		t.Errorf("a CronJob whose pods could not start: %v", err)
	}
	w.secret("uni", map[string]string{"password": "secret"})
	w.awaits("MirrorPartner", "uni", "Ready", "True/Ready")
	w.awaits("MirrorPartner", "uni", "Reachable", "Unknown/NotRun")
	w.awaits("MirrorPartner", "uni", "InstrumentsSelected", "True/Selected")
	cron := &batchv1.CronJob{}
	if err := w.there(cron, "uni-mirror"); err != nil || !metav1.IsControlledBy(cron, w.object("MirrorPartner", "uni")) {
		t.Fatalf("CronJob: %v, of %v", err, cron.OwnerReferences)
	}
	pod := cron.Spec.JobTemplate.Spec.Template.Spec
	if *pod.SecurityContext.RunAsNonRoot != true || !*pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem || pod.RestartPolicy != corev1.RestartPolicyNever ||
		*pod.AutomountServiceAccountToken || *cron.Spec.TimeZone != "Europe/Oslo" || pod.Containers[0].Image != "substorm/mirror-jobs:dev" {
		t.Errorf("the CronJob's pods are %+v", pod)
	}
	if next := w.mirrorStatus("uni").NextRunTime; next == nil || !next.After(time.Now()) {
		t.Errorf("the next run is at %v", next)
	}

	run := w.mirrorRun("uni")
	started := time.Now().Add(-time.Minute)
	run.says(wire.MirrorStatus{Run: "uni-mirror-1", Generation: 1, StartedAt: started, EndedAt: time.Now(), Result: wire.MirrorFailed, Reason: wire.MirrorReasonAccessDenied,
		Message: "auth failed on module aurora", Unreached: &wire.MirrorProblem{Reason: wire.MirrorReasonAccessDenied, Message: "auth failed on module aurora", Since: started}, Owed: &wire.MirrorOwed{Objects: 7, Bytes: 700}})
	w.awaits("MirrorPartner", "uni", "Reachable", "False/AccessDenied", "auth failed")
	w.awaits("MirrorPartner", "uni", "Synced", "False/AccessDenied", "7 objects")
	run.says(wire.MirrorStatus{Run: "uni-mirror-2", Generation: 1, StartedAt: time.Now(), EndedAt: time.Now().Add(time.Second), Result: wire.MirrorSucceeded, Reached: time.Now(),
		Progress: wire.MirrorProgress{Objects: 7, Bytes: 700, TotalObjects: 7, TotalBytes: 700}, Owed: &wire.MirrorOwed{}, VerifiedTo: started})
	w.awaits("MirrorPartner", "uni", "Reachable", "True/Reachable")
	w.awaits("MirrorPartner", "uni", "Synced", "True/Complete")
	status := w.mirrorStatus("uni")
	if len(status.Runs) != 2 || status.Runs[0].Name != "uni-mirror-2" || status.Runs[0].ObjectCount != 7 || status.LastSuccessTime == nil || status.VerifiedToTime == nil ||
		status.Owed == nil || status.Owed.ObjectCount != 0 {
		t.Errorf("status %+v", status)
	}

	want := map[string]float64{"substorm_mirror_reachable": 1, "substorm_mirror_synced": 1, "substorm_mirror_owed_objects": 0, "substorm_mirror_unconfirmed_purges": 0,
		"substorm_mirror_verified_to_timestamp_seconds": float64(started.Unix())}
	if diff := cmp.Diff(want, w.mirrorGauges("uni", slices.Sorted(maps.Keys(want))...)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}

	w.applyMirror("uni", rsyncWithPassword+`, state: Suspended, schedule: {cron: "15 2 * * *", timeZone: Europe/Oslo}`)
	w.awaits("MirrorPartner", "uni", "Ready", "True/Suspended")
	if err := w.there(cron, "uni-mirror"); err != nil || !*cron.Spec.Suspend {
		t.Errorf("the CronJob of a suspended mirror: %v, %v", cron.Spec.Suspend, err)
	}
	w.applyMirror("uni", rsyncWithPassword+`, schedule: {cron: "15 2 * * *", timeZone: Europe/Atlantis}`)
	w.awaits("MirrorPartner", "uni", "Accepted", "False/UnknownTimeZone", "spec.schedule.timeZone", "Europe/Atlantis")

	w.remove(w.object("MirrorPartner", "uni"))
	registry, err := w.nats.JetStream(t).KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	w.vanishes("the entry", func() error { _, err := registry.Get(t.Context(), wire.RegistryMirrorKey("uni")); return err }, jetstream.ErrKeyNotFound)
	reports, err := w.nats.JetStream(t).KeyValue(t.Context(), wire.StatusBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	w.vanishes("the reports", func() error {
		_, err := reports.Get(t.Context(), wire.MirrorStatusKey("uni", "uni-mirror-2"))
		return err
	}, jetstream.ErrKeyNotFound)
}

// TestMirrorPartnerContinuous: one pod; a schedule in its place; and what becomes of both without their Site.
func TestMirrorPartnerContinuous(t *testing.T) {
	w := newFeedWorld(t)
	w.secret("nmdc", map[string]string{"accessKeyID": "a", "secretAccessKey": "b"})
	spec := `direction: Push, protocol: S3, s3: {endpoint: "https://s3.example.org", bucket: aurora, credentialsSecretRef: {name: nmdc}}`
	w.applyMirror("nmdc", spec+`, continuous: {}, selection: {selector: {matchLabels: {group: fields}}}`)
	w.awaitMirrorEntry("nmdc", func(e wire.MirrorEntry) bool { return len(e.Selection.Instruments) == 2 })
	w.awaits("MirrorPartner", "nmdc", "Ready", "False/Progressing")
	d := &appsv1.Deployment{}
	eventually(t, "the Deployment is rolled out", func() error {
		if err := w.there(d, "nmdc-mirror"); err != nil {
			return err
		}
		return w.setRolledOut(t.Context(), d)
	})
	w.awaits("MirrorPartner", "nmdc", "Ready", "True/Ready")
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("strategy %s", d.Spec.Strategy.Type)
	}
	w.applyLabeled("camera", 30100, "fields") // an Instrument that begins to match is mirrored at once
	w.awaitMirrorEntry("nmdc", func(e wire.MirrorEntry) bool { return len(e.Selection.Instruments) == 3 })
	w.pullsIntoCamera()

	w.applyMirror("nmdc", spec+`, schedule: {cron: "@daily"}`)
	w.awaitGone(&appsv1.Deployment{}, "nmdc-mirror")
	w.awaits("MirrorPartner", "nmdc", "Ready", "True/Ready")
	if err := w.there(&batchv1.CronJob{}, "nmdc-mirror"); err != nil {
		t.Error(err)
	}
	w.removeSite("hub")
	w.awaits("MirrorPartner", "nmdc", "Accepted", "False/SiteNotFound", `Site "hub"`)
	w.awaitGone(&batchv1.CronJob{}, "nmdc-mirror")
	w.awaitGone(&corev1.ServiceAccount{}, "nmdc-mirror")
}

// pullsIntoCamera: a pull into an Instrument is accepted while that has no listeners.
func (w *world) pullsIntoCamera() {
	w.t.Helper()
	w.applyMirror("old", `direction: Pull, protocol: HTTPS, https: {url: "https://old.example.org", source: WebArchive}, paths: [{pattern: "**", instrumentRef: {name: camera}}], schedule: {cron: "@daily"}`)
	w.awaits("MirrorPartner", "old", "Accepted", "False/InstrumentHasListeners", `"camera"`)
	w.apply(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera, labels: {group: fields}}
spec: {siteRef: {name: hub}, type: AllSkyCamera}
`)
	w.awaits("MirrorPartner", "old", "Accepted", "True/Accepted")
}

// TestMirrorUserMayDoOnlyItsWork: what the credentials of a partner's runs open, and what they do not.
func TestMirrorUserMayDoOnlyItsWork(t *testing.T) {
	w := newFeedWorld(t)
	w.secret("uni", map[string]string{"password": "secret"})
	w.applyMirror("uni", rsyncWithPassword+`, schedule: {cron: "@daily"}`)
	w.awaits("MirrorPartner", "uni", "Ready", "True/Ready")
	m := w.mirrorRun("uni")
	removal := wire.Removal{Instrument: "camera", Day: "2026-11-21", ID: "x"}
	for what, err := range map[string]error{
		"report":                 m.putKV("STATUS_hub", wire.MirrorStatusKey("uni", "x")),
		"write its column":       m.putKV("LEDGER_hub", wire.LedgerKey("camera", "2026-11-21", wire.StepMirrored, "uni")),
		"keep its place":         m.putKV("CURSOR_hub", wire.MirrorCursorKey("uni", "place")),
		"confirm a purge":        m.putKV("CURSOR_hub", wire.MirrorConfirmedKey("uni", removal)),
		"hold its lease":         m.putKV("LEASE_hub", wire.MirrorLease("uni", wire.MirrorScheduled)),
		"follow the registry":    m.follows("REGISTRY_hub"),
		"list its places":        m.followsKeys("CURSOR_hub", wire.MirrorCursorKey("uni", "*")),
		"read what goes":         m.followsKeys("CURSOR_hub", wire.RemovalKeys),
		"follow notices":         m.consumes("NOTICE_hub"),
		"read the last notice":   m.last("NOTICE_hub"),
		"look at its own lease":  m.gets("LEASE_hub", wire.MirrorLease("uni", wire.MirrorScheduled)),
		"look at its own column": m.getsNewest("LEDGER_hub", wire.LedgerKey("camera", "2026-11-21", wire.StepMirrored, "uni")),
	} {
		if err != nil {
			t.Errorf("a run may not %s: %v", what, err)
		}
	}
	for what, try := range map[string]func() error{
		"report for another partner": func() error { return m.putKV("STATUS_hub", wire.MirrorStatusKey("other", "x")) },
		"report for a gateway":       func() error { return m.putKV("STATUS_hub", "gateway.pool-0") },
		"write the column of another": func() error {
			return m.putKV("LEDGER_hub", wire.LedgerKey("camera", "2026-11-21", wire.StepMirrored, "other"))
		},
		"write what is stored": func() error {
			return m.putKV("LEDGER_hub", wire.LedgerKey("camera", "2026-11-21", wire.StepStored, "uni"))
		},
		"write the registry":          func() error { return m.putKV("REGISTRY_hub", wire.RegistryMirrorKey("uni")) },
		"confirm a purge for another": func() error { return m.putKV("CURSOR_hub", wire.MirrorConfirmedKey("other", removal)) },
		"change a removal":            func() error { return m.putKV("CURSOR_hub", removal.Key()) },
		"take the archivist's lease":  func() error { return m.putKV("LEASE_hub", wire.ArchivistLease) },
		"publish a notice":            func() error { return m.publishes("notice.hub.camera") },
		"publish a decision":          func() error { return m.publishes("decision.hub.camera") },
		"publish telemetry":           func() error { return m.publishes("obs.hub.camera.raw") },
		"list places of another":      func() error { return m.followsKeys("CURSOR_hub", wire.MirrorCursorKey("other", "*")) },
		"follow what others note":     func() error { return m.follows("CURSOR_hub") },
		"follow the ledger":           func() error { return m.follows("LEDGER_hub") },
		"follow telemetry":            func() error { return m.consumes("OBS_hub") },
		"claim a name":                func() error { return m.putKV("NAMES_hub", "x") },
		"delete the notices": func() error {
			return m.denied(func(ctx context.Context) error { return m.js.DeleteStream(ctx, "NOTICE_hub") })
		},
		"delete another's consumer of data": func() error {
			return m.denied(func(ctx context.Context) error { return m.js.DeleteConsumer(ctx, "OBS_hub", "x") })
		},
	} {
		if err := try(); !isDenied(err) {
			t.Errorf("a run may %s: %v", what, err)
		}
	}
}

const pullFromArctic = `direction: Pull, protocol: HTTPS, https: {url: "https://arctic.example.org", source: Substorm, origin: arctic}`

// TestPullUserMayDoOnlyItsWork: a run that pulls from a Site says what that Site's instruments are and requests changes of what came
// from it, and nothing of other Sites' instruments nor of own ones.
func TestPullUserMayDoOnlyItsWork(t *testing.T) {
	w := newFeedWorld(t)
	w.secret("uni", map[string]string{"password": "secret"})
	w.applyMirror("arctic", pullFromArctic+`, schedule: {cron: "@daily"}`)
	w.applyMirror("uni", rsyncWithPassword+`, schedule: {cron: "@daily"}`)
	w.awaits("MirrorPartner", "arctic", "Ready", "True/Ready")
	w.awaits("MirrorPartner", "uni", "Ready", "True/Ready")
	m, pushes := w.mirrorRun("arctic"), w.mirrorRun("uni")
	own := map[string]func(*mirrorRun) error{
		"say what an instrument there is": func(m *mirrorRun) error { return m.putKV("REGISTRY_hub", wire.RegistryGuestKey("arctic", "camera")) },
		"say which certificate it shows": func(m *mirrorRun) error {
			return m.putKV("REGISTRY_hub", wire.RegistryMoverKey("arctic", wire.MirrorManual))
		},
		"request a change of what came": func(m *mirrorRun) error { return m.publishes(wire.RequestSubject("hub", "arctic_camera")) },
		"look at a gateway's report": func(m *mirrorRun) error {
			err := m.gets("STATUS_hub", wire.GatewayStatusKey("pool-0"))
			if errors.Is(err, jetstream.ErrKeyNotFound) { // it was answered
				err = nil
			}
			return err
		},
		"list the reports of gateways": func(m *mirrorRun) error { return m.watches("STATUS_hub", wire.GatewayStatusKey(">")) },
	}
	for what, try := range own {
		if err := try(m); err != nil {
			t.Errorf("a run that pulls may not %s: %v", what, err)
		}
		if err := try(pushes); !isDenied(err) {
			t.Errorf("a run that pushes may %s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"follow the registry":  m.follows("REGISTRY_hub"),
		"follow the index":     m.follows("INDEX_hub"),
		"follow notices":       m.consumes("NOTICE_hub"),
		"keep its place":       m.putKV("CURSOR_hub", wire.MirrorCursorKey("arctic", "place")),
		"look at its place":    m.gets("CURSOR_hub", wire.MirrorCursorKey("arctic", "place")),
		"hold its lease":       m.putKV("LEASE_hub", wire.MirrorLease("arctic", wire.MirrorScheduled)),
		"report":               m.putKV("STATUS_hub", wire.MirrorStatusKey("arctic", "x")),
		"look at its lease":    m.gets("LEASE_hub", wire.MirrorLease("arctic", wire.MirrorScheduled)),
		"read the last notice": m.last("NOTICE_hub"),
	} {
		if err != nil {
			t.Errorf("a run that pulls may not %s: %v", what, err)
		}
	}
	for what, try := range map[string]func() error{
		"say what an instrument of another Site is": func() error { return m.putKV("REGISTRY_hub", wire.RegistryGuestKey("antarctic", "camera")) },
		"say what an own instrument is":             func() error { return m.putKV("REGISTRY_hub", wire.RegistryInstrumentKey("camera")) },
		"speak for another partner":                 func() error { return m.putKV("REGISTRY_hub", wire.RegistryMoverKey("uni", wire.MirrorManual)) },
		"declare itself":                            func() error { return m.putKV("REGISTRY_hub", wire.RegistryMirrorKey("arctic")) },
		"request a change of an own instrument":     func() error { return m.publishes(wire.RequestSubject("hub", "camera")) },
		"request a change of another Site's":        func() error { return m.publishes(wire.RequestSubject("hub", "antarctic_camera")) },
		"report for a gateway":                      func() error { return m.putKV("STATUS_hub", wire.GatewayStatusKey("pool-0")) },
		"follow all reports":                        func() error { return m.follows("STATUS_hub") },
		"announce an object":                        func() error { return m.publishes(wire.MirroredSubject("hub", "arctic_camera")) },
		"publish a decision":                        func() error { return m.publishes(wire.DecisionSubject("hub", "arctic_camera", "x")) },
		"read the ledger":                           func() error { return m.follows("LEDGER_hub") },
		"write the ledger": func() error {
			return m.putKV("LEDGER_hub", wire.LedgerKey("camera", "2026-11-21", wire.StepMirrored, "arctic"))
		},
	} {
		if err := try(); !isDenied(err) {
			t.Errorf("a run that pulls may %s: %v", what, err)
		}
	}
}

func isDenied(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrNoResponders)
}

func (m *mirrorRun) watches(bucket, match string) error {
	return m.denied(func(ctx context.Context) error {
		kv, err := m.js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		watch, err := kv.Watch(ctx, match)
		if err == nil {
			err = watch.Stop()
		}
		return err
	})
}

func (m *mirrorRun) denied(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	return try(ctx)
}

func (m *mirrorRun) follows(bucket string) error { return m.followsKeys(bucket, ">") }

func (m *mirrorRun) followsKeys(bucket, keys string) error {
	return m.denied(func(ctx context.Context) error {
		kv, err := m.js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		watch, err := kv.Watch(ctx, keys)
		if err == nil {
			err = watch.Stop()
		}
		return err
	})
}

func (m *mirrorRun) gets(bucket, key string) error {
	return m.denied(func(ctx context.Context) error {
		kv, err := m.js.KeyValue(ctx, bucket)
		if err == nil {
			_, err = kv.Get(ctx, key)
		}
		return err
	})
}

// getsNewest asks the leader of a bucket.
func (m *mirrorRun) getsNewest(bucket, key string) error {
	return m.denied(func(ctx context.Context) error { _, _, err := stream.Newest(ctx, m.js, bucket, key); return err })
}

func (m *mirrorRun) consumes(from string) error {
	return m.denied(func(ctx context.Context) error {
		c, err := m.js.CreateConsumer(ctx, from, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		if err != nil {
			return err
		}
		_, err = c.FetchNoWait(1)
		return err
	})
}

func (m *mirrorRun) last(stream string) error {
	return m.denied(func(ctx context.Context) error {
		s, err := m.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		if _, err = s.GetLastMsgForSubject(ctx, "notice.hub.camera"); errors.Is(err, jetstream.ErrMsgNotFound) {
			err = nil
		}
		return err
	})
}

func (m *mirrorRun) publishes(subject string) error {
	return m.denied(func(ctx context.Context) error { _, err := m.js.Publish(ctx, subject, nil); return err })
}
