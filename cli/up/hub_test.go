// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator"
)

// hub is a Site with NATS servers of its own, an API server and an operator, as on a cluster. No gateway or archivist runs there: its
// object store is away, and its streams do not need it.
type hub struct {
	nats   *testenv.NATSServer
	client client.Client
}

const hubSite = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  leaves: [{code: north}]
  objectStore: {endpoint: "http://127.0.0.1:1", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream:
    servers: [%q]
    accountKeySecretRef: {name: account}
    leafAccountKeySecretRef: {name: leaves}
    tls: {caSecretRef: {name: nats-ca}}
    observations: {maxSize: 64Mi}
    notices: {maxSize: 64Mi}
`

func startHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{nats: testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, AnyClient: true, Domain: "hub", TakesLeaves: true})}
	api := testenv.Kubernetes(t)
	scheme, err := operator.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	if h.client, err = client.New(api.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(hubSite, h.nats.URL()) + secretYAML("s3", "accessKeyID", "id", "secretAccessKey", "secret") +
		secretYAML("account", "account.seed", h.nats.AccountSeed, "account.id", h.nats.AccountID) +
		secretYAML("leaves", "account.seed", h.nats.LeavesSeed, "account.id", h.nats.LeavesID) +
		secretYAML("nats-ca", "ca.crt", string(h.nats.CA.PEM))
	objects, err := manifests.Up.Parse("hub.yaml", []byte(text), "default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifests.Apply(t.Context(), h.client, objects, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	testenv.StartOperator(t, api.Kubeconfig(t, "operator", "system:masters"), "--leader-election=false")
	return h
}

// credentials are those that the hub's operator issues for a leaf.
func (h *hub) credentials(t *testing.T, leaf string) string {
	t.Helper()
	var secret corev1.Secret
	eventually(t, "the hub issues credentials", func() error {
		return h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "hub-leaf-" + leaf}, &secret)
	})
	return string(secret.Data["user.creds"])
}

// secretYAML is the manifest of a Secret with these keys and values.
func secretYAML(name string, data ...string) string {
	text := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\ndata:\n"
	for i := 0; i < len(data); i += 2 {
		text += "  " + data[i] + ": " + base64.StdEncoding.EncodeToString([]byte(data[i+1])) + "\n"
	}
	return text
}

// messages are what a stream holds on subjects: how often each subject and ce-id is there.
func messages(ctx context.Context, js jetstream.JetStream, stream, subjects string) (map[string]int, error) {
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjects}})
	if err != nil {
		return nil, err
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	for range info.NumPending {
		msg, err := consumer.Next()
		if err != nil {
			return nil, err
		}
		all[msg.Subject()+" "+msg.Headers().Get(wire.HeaderID)]++
	}
	return all, nil
}
