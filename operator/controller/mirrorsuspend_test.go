// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
)

// awaitSuspend waits until the CronJob of a MirrorPartner begins runs, or begins none.
func (w *world) awaitSuspend(partner string, want bool) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the CronJob of %s with suspend %v", partner, want), func() error {
		cron := &batchv1.CronJob{}
		err := w.there(cron, partner+"-mirror")
		if err == nil && *cron.Spec.Suspend != want {
			err = fmt.Errorf("its suspend is %v", *cron.Spec.Suspend)
		}
		return err
	})
}

func (w *world) awaitReplicas(partner string, want int32) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the Deployment of %s with %d replicas", partner, want), func() error {
		d := &appsv1.Deployment{}
		err := w.there(d, partner+"-mirror")
		if err == nil && *d.Spec.Replicas != want {
			err = fmt.Errorf("its replicas are %d", *d.Spec.Replicas)
		}
		return err
	})
}

// TestMirrorPartnerSuspendsWhateverIsAmiss: a MirrorPartner that is suspended begins no run, also where it is not accepted or lacks a
// Secret; and once nothing is amiss and it is active, runs begin again.
func TestMirrorPartnerSuspendsWhateverIsAmiss(t *testing.T) {
	w := newFeedWorld(t)
	const schedule = `, schedule: {cron: "15 2 * * *", timeZone: %s}`
	w.secret("uni", map[string]string{"password": "secret"})
	w.secret("nmdc", map[string]string{"accessKeyID": "a", "secretAccessKey": "b"})
	bucket := `direction: Push, protocol: S3, s3: {endpoint: "https://s3.example.org", bucket: aurora, credentialsSecretRef: {name: nmdc}}, continuous: {}`
	w.applyMirror("uni", rsyncWithPassword+fmt.Sprintf(schedule, "Europe/Oslo"))
	w.applyMirror("nmdc", bucket)
	w.awaitSuspend("uni", false)
	w.awaitReplicas("nmdc", 1)

	w.applyMirror("uni", rsyncWithPassword+`, state: Suspended`+fmt.Sprintf(schedule, "Europe/Atlantis"))
	w.awaits("MirrorPartner", "uni", "Accepted", "False/UnknownTimeZone")
	w.awaitSuspend("uni", true)
	w.awaitMirrorEntry("uni", func(e wire.MirrorEntry) bool { return e.Suspended && e.Generation == 1 })
	cron := &batchv1.CronJob{}
	if err := w.there(cron, "uni-mirror"); err != nil || *cron.Spec.TimeZone != "Europe/Oslo" || len(cron.Spec.JobTemplate.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("the CronJob changed beside its suspend: %v, %+v", err, cron.Spec)
	}
	w.applyMirror("uni", rsyncWithPassword+fmt.Sprintf(schedule, "Europe/Oslo"))
	w.awaitSuspend("uni", false)
	w.awaitMirrorEntry("uni", func(e wire.MirrorEntry) bool { return !e.Suspended && e.Generation == 3 })

	for _, name := range []string{"uni", "nmdc"} {
		w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}})
		w.awaits("MirrorPartner", name, "Ready", "False/SecretNotFound")
	}
	w.applyMirror("uni", rsyncWithPassword+`, state: Suspended`+fmt.Sprintf(schedule, "Europe/Oslo"))
	w.applyMirror("nmdc", bucket+`, state: Suspended`)
	w.awaitSuspend("uni", true)
	w.awaitReplicas("nmdc", 0)
	w.awaitMirrorEntry("nmdc", func(e wire.MirrorEntry) bool { return e.Suspended })

	w.applyMirror("nmdc", bucket)
	w.secret("nmdc", map[string]string{"accessKeyID": "a", "secretAccessKey": "b"})
	w.awaitReplicas("nmdc", 1)
}
