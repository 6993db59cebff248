// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/substorm/substorm/cli/resources"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const samples = "../../../docs/samples"

// kubectl is the real one, with a server's kubeconfig.
type kubectl struct {
	t      *testing.T
	path   string
	config string
}

func kubectlOf(t *testing.T, s *Server) kubectl {
	t.Helper()
	return kubectl{t, testenv.Path(t, "kubectl"), s.Kubeconfig()}
}

// command reads its standard input from a text.
func (k kubectl) command(input string, args ...string) *exec.Cmd {
	c := exec.CommandContext(k.t.Context(), k.path, append([]string{"--kubeconfig", k.config, "--cache-dir", filepath.Join(filepath.Dir(k.config), "cache")}, args...)...)
	c.Stdin = strings.NewReader(input)
	return c
}

// says runs kubectl, which must succeed, and looks for texts in what it says.
func (k kubectl) says(args []string, wants ...string) string {
	k.t.Helper()
	out, err := k.command("", args...).CombinedOutput()
	if err != nil {
		k.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, want := range wants {
		if !strings.Contains(string(out), want) {
			k.t.Errorf("kubectl %s does not say %q:\n%s", strings.Join(args, " "), want, out)
		}
	}
	return string(out)
}

// refuses runs kubectl, which must fail with a text.
func (k kubectl) refuses(input, want string, args ...string) {
	k.t.Helper()
	out, err := k.command(input, args...).CombinedOutput()
	exit := &exec.ExitError{}
	if !errors.As(err, &exit) || !strings.Contains(string(out), want) {
		k.t.Errorf("kubectl %s: %v, and not %q:\n%s", strings.Join(args, " "), err, want, out)
	}
}

func words(s string) []string { return strings.Fields(s) }

func TestKubectlReadsAndWrites(t *testing.T) {
	k := kubectlOf(t, start(t, t.TempDir()))
	k.says(words("apply -f "+samples), "instrument.substorm.dev/magnetometer created")
	k.says(words("apply -f "+samples), "allsky-camera unchanged")
	k.says(words("apply --server-side --force-conflicts -f "+samples), "magnetometer serverside-applied")
	k.says(words("get inst"), "NAME", "STATION", "boulder")
	k.says(words("get instruments -o wide"), "MESSAGE")
	k.says(words("get substorm -o yaml"), "packBelow: 64Ki", "observedGeneration: -1")
	k.says(words("get inst --field-selector spec.siteRef.name=demo"), "boulder")
	k.says(words("get inst --field-selector spec.siteRef.name=other"), "No resources found")
	k.says(words("label inst magnetometer a=b"), "labeled")
	k.says(words("annotate inst magnetometer a=b"), "annotated")
	k.says(words("get inst -l a=b"), "boulder")
	k.says(words("describe inst magnetometer"), "Station:", "boulder", "Events:")
	k.says([]string{"patch", "inst", "magnetometer", "--type=merge", "-p", `{"spec":{"state":"Retired"}}`}, "patched")
	k.says(words("get inst magnetometer -o jsonpath={.metadata.generation}"), "2")
	k.refuses("", "spec.state: Unsupported value", "patch", "inst", "magnetometer", "--type=merge", "-p", `{"spec":{"state":"Asleep"}}`)
	k.refuses("apiVersion: substorm.dev/v1alpha1\nkind: Instrument\nmetadata: {name: x}\nspec: {nonsense: 1}\n",
		`unknown field "spec.nonsense"`, "apply", "-f", "-")
	k.says(words("delete inst magnetometer"), "deleted")
	k.refuses("", "not found", "get", "inst", "magnetometer")
}

// TestKubectlRestores: what `kubectl get -o yaml` printed, a List, is applied as at a kube-apiserver, and a mistake in one is said as there.
func TestKubectlRestores(t *testing.T) {
	const two = "apiVersion: v1\nkind: List\nitems:\n" +
		"- {apiVersion: substorm.dev/v1alpha1, kind: Instrument, metadata: {name: a}, spec: {siteRef: {name: try}, type: Files}}\n" +
		"- {apiVersion: substorm.dev/v1alpha1, kind: Instrument, metadata: {name: b}, spec: {siteRef: {name: try}, type: Files}}\n"
	ours := kubectlOf(t, start(t, t.TempDir()))
	servers := []kubectl{{t, ours.path, kubeconfigOf(t, testenv.Kubernetes(t).Config)}, ours}
	var said [2][]string
	for i, k := range servers {
		run := func(input string, args ...string) string {
			out, err := k.command(input, args...).CombinedOutput()
			said[i] = append(said[i], fmt.Sprintf("%s (%v)", out, err))
			return string(out)
		}
		run(two, "apply", "-f", "-")
		backup := k.says(words("get instruments -o yaml"))
		run("", "delete", "instrument", "a")
		run(backup, "apply", "-f", "-")
		run("", "get", "instruments", "-o", "name")
		run(two, "apply", "--server-side", "--force-conflicts", "-f", "-")
		run(strings.ReplaceAll(two, "kind: Instrument", "kind: Instruments"), "apply", "-f", "-")
		run(strings.Replace(two, "kind: List", "kind: Lists", 1), "apply", "-f", "-")
		run("", "delete", "instruments", "--all")
	}
	if diff := gocmp.Diff(said[0], said[1]); diff != "" {
		t.Errorf("at a kube-apiserver (-), here (+):\n%s", diff)
	}
	if !strings.Contains(strings.Join(said[1], "\n"), "instrument.substorm.dev/a created\ninstrument.substorm.dev/b ") {
		t.Errorf("it is not restored: %q", said[1])
	}
}

// TestRestoredByOurApply: what `substorm get -o yaml` printed is applied, and then another manifest. A manifest that cannot be read is
// reported, and does not keep the rest from being applied.
func TestRestoredByOurApply(t *testing.T) {
	t.Setenv("KUBECONFIG", start(t, t.TempDir()).Kubeconfig())
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		t.Helper()
		root, out := &cobra.Command{SilenceErrors: true, SilenceUsage: true}, bytes.Buffer{}
		root.AddCommand(resources.Commands()...)
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	manifest := func(interval string) string {
		return write("a.yaml", "apiVersion: substorm.dev/v1alpha1\nkind: Instrument\nmetadata: {name: a}\nspec: {siteRef: {name: try}, type: Files, cadence: {interval: "+interval+"}}\n")
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return out
	}
	must("apply", "-f", manifest("20s"))
	saved := write("saved.yaml", must("get", "instrument", "a", "-o", "yaml"))
	must("apply", "-f", saved)
	must("apply", "-f", manifest("30s"))
	must("apply", "-f", saved) // it changed since
	must("apply", "--server-side", "--force-conflicts", "-f", saved)
	if now := must("get", "instrument", "a", "-o", "yaml"); !strings.Contains(now, "interval: 20s") {
		t.Errorf("it is not restored:\n%s", now)
	}
	if out, err := run("apply", "-f", manifest("40s"), "-f", write("b.yaml", "kind: [")); err == nil || !strings.Contains(err.Error(), "b.yaml") || !strings.Contains(out, "configured") {
		t.Errorf("with a file that cannot be read: %v\n%s", err, out)
	}
	if _, err := run("apply", "-f", manifest("20")); err == nil || !strings.Contains(err.Error(), "spec.cadence.interval: expected text") || strings.HasSuffix(err.Error(), "* ") {
		t.Errorf("of a number where text belongs: %v", err)
	}
}

// kubeconfigOf writes what lets kubectl in at a server.
func kubeconfigOf(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "it",
		Clusters:  map[string]*clientcmdapi.Cluster{"it": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"it": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "it"}}}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKubectlExplains(t *testing.T) {
	k := kubectlOf(t, start(t, t.TempDir()))
	k.says(words("explain site.spec.archivist"), "KIND:       Site", "Archivist says how")
	k.says(words("explain instrument.metadata.ownerReferences.uid"), "UID of the referent")
	k.says(words("explain statefulset.spec.template.spec.containers.ports"), "containerPort")
	k.says(words("api-resources"), "ingestgateways", "igw", "poddisruptionbudgets")
	k.says(words("version"), "Server Version: v1.37.0+substorm")
}

func TestKubectlBuiltinKinds(t *testing.T) {
	s := start(t, t.TempDir())
	k := kubectlOf(t, s)
	k.says(words("create secret generic s --from-literal=key=value"), "created")
	k.says(words("get secret s -o jsonpath={.data.key}"), "dmFsdWU=")
	k.says(words("create deployment d --image=x"), "created")
	k.says(words("set image deployment d x=y"), "updated")
	k.says(words("scale deployment d --replicas=3"), "scaled")
	k.says(words("get deployment d -o jsonpath={.spec.replicas}/{.metadata.generation}"), "3/3")
	k.says(words("-n elsewhere create serviceaccount a"), "created")
	k.says(words("get namespaces"), "default", "kube-system", "elsewhere")
	k.says(words("delete namespace elsewhere"), "deleted")
	k.says(words("get serviceaccounts -A"), "No resources found")
	stringData := "apiVersion: v1\nkind: Secret\nmetadata: {name: text}\nstringData: {key: value}\n"
	if out, err := k.command(stringData, "apply", "--server-side", "-f", "-").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out := k.says(words("get secret text -o yaml")); !strings.Contains(out, "key: dmFsdWU=") || strings.Contains(out, "stringData: ") {
		t.Errorf("stringData is not merged into data:\n%s", out)
	}
	c := s.RESTConfig()
	c.BearerToken = "another"
	if _, err := kubernetes.NewForConfigOrDie(c).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("with another token: %v", err)
	}
}

func TestKubectlScalesPools(t *testing.T) {
	k := kubectlOf(t, start(t, t.TempDir()))
	k.says(words("apply -f ../../../operator/api/v1alpha1/testdata/good/gateway-small.yaml"), "created")
	k.says(words("scale igw --all --replicas=4"), "scaled")
	k.says(words("get igw -o jsonpath={.items[0].spec.replicas}"), "4")
	k.says(words("get igw -o jsonpath={.items[0].metadata.managedFields} --show-managed-fields"), `"subresource":"scale"`)
}

// TestKubectlWaitsAndWatches: what another client changes is seen by those who wait.
func TestKubectlWaitsAndWatches(t *testing.T) {
	s := start(t, t.TempDir())
	k := kubectlOf(t, s)
	k.says(words("apply -f "+samples), "created")
	ctx, stop := context.WithCancel(t.Context())
	watching := k.command("", "get", "inst", "-w", "-o", "name")
	out := &bytes.Buffer{}
	reader, err := watching.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		buffer := make([]byte, 4096)
		for !bytes.Contains(out.Bytes(), []byte("late")) {
			n, err := reader.Read(buffer)
			out.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	waiting := k.command("", "wait", "--for=condition=Ready", "inst/magnetometer", "--timeout=60s")
	waited := make(chan error, 1)
	go func() { waited <- waiting.Run() }()
	setReady(ctx, t, s.RESTConfig())
	if err := <-waited; err != nil {
		t.Errorf("kubectl wait: %v", err)
	}
	late := strings.Replace(k.says(words("get inst magnetometer -o yaml")), "name: magnetometer", "name: late", 1)
	late = strings.NewReplacer("\n  uid:", "\n  # uid:", "\n  resourceVersion:", "\n  # resourceVersion:").Replace(late)
	if out, err := k.command(late, "create", "-f", "-").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case <-seen:
	case <-time.After(testenv.Patience):
	}
	stop()
	_ = watching.Process.Kill()
	_ = watching.Wait()
	<-seen
	if !strings.Contains(out.String(), "instrument.substorm.dev/late") {
		t.Errorf("kubectl get -w saw %s", out)
	}
}

// setReady says in the status of the magnetometer that it is ready, as a controller does.
func setReady(ctx context.Context, t *testing.T, cfg *rest.Config) {
	t.Helper()
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"observedGeneration":9,"conditions":[{"type":"Ready","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	_, err = c.Resource(v1alpha1.GroupVersion.WithResource("instruments")).Namespace("default").Patch(ctx, "magnetometer",
		types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}
