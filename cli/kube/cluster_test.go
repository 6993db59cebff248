// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// TestUnreadableSite: a request for a Site that Go cannot decode returns the reason, and other Sites are returned; lists have all.
func TestUnreadableSite(t *testing.T) {
	api := kubetest.Start(t)
	const spec = `
  objectStore: {endpoint: "https://s3.example:9000", bucket: substorm, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: account}}
`
	testenv.ApplyLoosened(t, api.Config, "sites", []string{"archivist", "partInterval"}, `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: old, namespace: default}
spec:
  code: old
  archivist: {partInterval: 99999999999999999999m}`+spec)
	cluster, err := kube.New(api.Config, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", ""} { // by its name, and as the only one
		if site, err := cluster.Site(t.Context(), name); err == nil || !strings.Contains(err.Error(), `Site "old"`) || !strings.Contains(err.Error(), "spec.archivist: ") {
			t.Errorf("Site %q: %+v, %v", name, site, err)
		}
	}
	testenv.ApplyLoosened(t, api.Config, "sites", []string{"archivist", "partInterval"}, `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub, namespace: default}
spec:
  code: hub`+spec)
	if site, err := cluster.Site(t.Context(), "hub"); err != nil || site.Spec.Code != "hub" {
		t.Errorf("%+v, %v", site, err)
	}
	// Its status has not been written yet, and the process that runs it has published its servers.
	own := plan.Standalone{ObjectStore: v1alpha1.ObjectStore{Endpoint: "file:///objects", Bucket: "own"}}
	data, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: plan.StandaloneSecret, Namespace: "default"}, Data: map[string][]byte{plan.KeyStandalone: data}}
	if err := cluster.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if site, err := cluster.Site(t.Context(), "hub"); err != nil || site.Spec.ObjectStore.Bucket != "own" {
		t.Errorf("a Site that was just started: %+v, %v", site.Spec.ObjectStore, err)
	}
	var all v1alpha1.SiteList
	if err := cluster.List(t.Context(), &all); err != nil || len(all.Items) != 2 {
		t.Errorf("%d Sites, %v", len(all.Items), err)
	}
}

// TestErrorsSayWhatToDo: an API server that is away, and one that does not know Substorm, are named, with the next step.
func TestErrorsSayWhatToDo(t *testing.T) {
	away := fmt.Sprintf("https://127.0.0.1:%d", testenv.FreePort(t))
	cluster, err := kube.New(&rest.Config{Host: away}, "default")
	if err != nil {
		t.Fatal(err)
	}
	want := "reach the API server at " + away + ": dial tcp " + strings.TrimPrefix(away, "https://") + ": connect: connection refused: see that it runs, or name another cluster with --kubeconfig, "
	for _, name := range []string{"", "hub"} {
		if _, err := cluster.Site(t.Context(), name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Site %q of an API server that is away: %v, want %s", name, err, want)
		}
	}

	data, err := os.ReadFile("../../crds/substorm.dev_feedservers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	one := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, one); err != nil {
		t.Fatal(err)
	}
	for want, kinds := range map[string][]*apiextensionsv1.CustomResourceDefinition{"Substorm's kinds": nil, "Site.substorm.dev": {one}} {
		config := testenv.KubernetesWith(t, kinds).Config
		if cluster, err = kube.New(config, "default"); err != nil {
			t.Fatal(err)
		}
		_, err := cluster.Site(t.Context(), "")
		want = "the cluster at " + config.Host + " does not know " + want + ": install or update the chart charts/substorm, or name another cluster with --kubeconfig, "
		if err == nil || !strings.HasPrefix(err.Error(), want) || !meta.IsNoMatchError(err) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
