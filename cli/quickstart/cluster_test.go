// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
)

func TestCommandMakesTheSecretsInACluster(t *testing.T) {
	server := testenv.Kubernetes(t)
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "aurora"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := server.Kubeconfig(t, "administrator", "system:masters")

	if _, err := run(t, "--kubeconfig", kubeconfig, "-n", "aurora", "--instance", "qs"); err != nil {
		t.Fatal(err)
	}
	first := secretsIn(t, client)
	if len(first) != len(allSecrets) {
		t.Fatalf("%d secrets, want %d", len(first), len(allSecrets))
	}
	if _, err := run(t, "--kubeconfig", kubeconfig, "-n", "aurora"); err != nil {
		t.Fatal(err)
	}
	for name, s := range secretsIn(t, client) {
		if s.ResourceVersion != first[name].ResourceVersion {
			t.Errorf("%s was written again", name)
		}
		if s.Labels["app.kubernetes.io/instance"] != "qs" {
			t.Errorf("%s has labels %v", name, s.Labels)
		}
	}

	// A Secret that an earlier release left is completed.
	older := first["substorm-nats-auth"]
	for _, key := range []string{"commands-root.seed", "commands-signing.seed", "commands.jwt"} {
		delete(older.Data, key)
	}
	if _, err := client.CoreV1().Secrets("aurora").Update(t.Context(), &older, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Secrets("aurora").Delete(t.Context(), "substorm-nats-commands", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "--kubeconfig", kubeconfig, "-n", "aurora"); err != nil {
		t.Fatal(err)
	}
	if now := secretsIn(t, client); len(now["substorm-nats-auth"].Data["commands.jwt"]) == 0 || len(now["substorm-nats-commands"].Data[keyAccountSeed]) == 0 {
		t.Error("the account COMMANDS was not made")
	}

	unknown := server.Kubeconfig(t, "unknown")
	_, err = run(t, "--kubeconfig", unknown, "-n", "aurora")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "substorm-nats-operator") {
		t.Errorf("without rights: %v, want forbidden and the secret's name", err)
	}
}

func secretsIn(t *testing.T, client kubernetes.Interface) map[string]corev1.Secret {
	t.Helper()
	list, err := client.CoreV1().Secrets("aurora").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]corev1.Secret{}
	for _, s := range list.Items {
		found[s.Name] = s
	}
	return found
}

// run runs `substorm quickstart keys` and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := Command()
	c.SetArgs(append([]string{"keys"}, args...))
	c.SetOut(&out)
	c.SetErr(t.Output())
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestDryRunPrintsTheSecrets(t *testing.T) {
	out, err := run(t, "--dry-run", "-o", "yaml", "-n", "aurora")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, doc := range strings.Split(out, "---\n") {
		var s corev1.Secret
		if err := yaml.UnmarshalStrict([]byte(doc), &s); err != nil {
			t.Fatal(err)
		}
		if s.Kind != "Secret" || s.Namespace != "aurora" || len(s.Data) == 0 {
			t.Errorf("%s %s/%s has %d keys", s.Kind, s.Namespace, s.Name, len(s.Data))
		}
		names = append(names, s.Name)
	}
	if got, want := strings.Join(names, " "), strings.Join(allSecrets, " "); got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	if _, err := run(t, "-o", "yaml"); err == nil {
		t.Error("-o without --dry-run was accepted")
	}
}
