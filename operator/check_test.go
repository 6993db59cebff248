// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestCheckWithUnreadableObject: an object that Go cannot decode, as a version of other CRDs may have stored it, does not fail the check,
// since the operator continues too; the log names it.
func TestCheckWithUnreadableObject(t *testing.T) {
	api := testenv.Kubernetes(t)
	scheme, err := operator.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(api.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "substorm-operator.substorm.dev"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("one"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())}}
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	testenv.ApplyLoosened(t, api.Config, "instruments", []string{"forward", "endTime"}, `
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera, namespace: default}
spec:
  siteRef: {name: demo}
  type: AllSkyCamera
  listeners: [{name: tcp, protocol: TCP, port: 30101}]
  forward: {address: "192.0.2.9:5000", protocol: TCP, endTime: "2027-01-01T00:00:00+99:99"}
`)
	if err := c.List(t.Context(), &v1alpha1.InstrumentList{}); err == nil {
		t.Fatal("a client lists the object: this test shows nothing")
	}
	var log bytes.Buffer
	err = operator.Check(t.Context(), operator.CheckConfig{Kubernetes: api.Config, Namespace: "default", Patience: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"name=camera", "spec.forward: ", "+99:99"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, &log)
		}
	}
}
