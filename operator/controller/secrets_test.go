// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Secret that was read is not read again until it is seen to have changed, however often its Site and pools are
// reconciled: what this test awaits, no periodic reconciliation brings.
func TestSecretsOfAReadySiteChange(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	w.awaits("IngestGateway", "pool", "Ready", "False/Progressing") // no node runs its pods

	for _, tc := range []struct {
		secret, field, condition string
		data                     map[string]string
	}{
		{"s3", "spec.objectStore.credentialsSecretRef", "ObjectStoreReachable",
			map[string]string{"accessKeyID": w.minio.AccessKeyID, "secretAccessKey": w.minio.SecretAccessKey}},
		{"account", "spec.jetStream.accountKeySecretRef", "JetStreamReachable",
			map[string]string{"account.seed": w.nats.AccountSeed, "account.id": w.nats.AccountID}},
		{"s3-tls", "spec.objectStore.tls.caSecretRef", "ObjectStoreReachable", map[string]string{"ca.crt": string(w.minio.CA.PEM)}},
	} {
		w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tc.secret, Namespace: w.namespace}})
		c := w.awaits("Site", "hub", tc.condition, "False/SecretNotFound")
		says(t, c, tc.secret, tc.field, "create it")
		w.awaits("Site", "hub", "Ready", "False/SecretNotFound")
		c = w.awaits("IngestGateway", "pool", "Ready", "False/SecretNotFound")
		says(t, c, tc.secret, tc.field, "create it")

		w.secret(tc.secret, tc.data)
		w.awaits("Site", "hub", "Ready", "True/Ready")
		w.awaits("IngestGateway", "pool", "Ready", "False/Progressing")
	}

	for _, change := range []struct{ secret, data, field, condition string }{
		{"s3-tls", `{"ca.crt": "no certificate"}`, "spec.objectStore.tls.caSecretRef", "ObjectStoreReachable"},
		{"nats-tls", `{"tls.key": "no key"}`, "spec.jetStream.tls.certificateSecretRef", "JetStreamReachable"},
	} {
		key := client.ObjectKey{Name: change.secret, Namespace: w.namespace}
		secret := &corev1.Secret{}
		if err := w.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
		was := secret.DeepCopy()
		if err := w.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(`{"stringData":`+change.data+`}`))); err != nil {
			t.Fatal(err)
		}
		w.awaits("Site", "hub", change.condition, "False/SecretIncomplete", change.secret, change.field, "PEM")
		secret.Data = was.Data
		if err := w.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		w.awaits("Site", "hub", change.condition, "True/Reachable")
	}

	for _, change := range []struct{ key, want string }{
		{"wrong-secret", "False/AccessDenied"},
		{w.minio.SecretAccessKey, "True/Reachable"},
	} {
		s3 := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: w.namespace}}
		if err := w.Patch(t.Context(), s3, client.RawPatch("application/merge-patch+json",
			[]byte(`{"stringData":{"secretAccessKey":"`+change.key+`"}}`))); err != nil {
			t.Fatal(err)
		}
		w.awaits("Site", "hub", "ObjectStoreReachable", change.want)
	}
}

func TestPoolsSecretIsDeleted(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.awaits("IngestGateway", "pool", "Ready", "False/Progressing")
	issued := &corev1.Secret{}
	key := client.ObjectKey{Namespace: w.namespace, Name: "pool-jetstream"}
	if err := w.Get(t.Context(), key, issued); err != nil {
		t.Fatal(err)
	}
	w.remove(issued)
	eventually(t, "the pool's credentials should be issued anew", func() error {
		again := &corev1.Secret{}
		if err := w.Get(t.Context(), key, again); err != nil {
			return err
		}
		if again.UID == issued.UID || len(again.Data["user.creds"]) == 0 {
			return errors.New("they are the old ones, or none")
		}
		return nil
	})
}
