// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "aurora", Name: name} }

func secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta(name), StringData: data}
}

func tlsSecret(t *testing.T, name string, ca *testenv.CA) *corev1.Secret {
	t.Helper()
	dir, data := ca.Dir(t, "client"), map[string]string{}
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		data[file] = string(text)
	}
	return secret(name, data)
}

// TestArchiveOfASiteInACluster: everything comes from the Site and its Secrets,
// with a JetStream user that may only read.
func TestArchiveOfASiteInACluster(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{TLS: true})
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Domain: site})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	putEntries(t, js, time.Now())

	cluster := kubetest.Start(t)
	ref := func(name string) v1alpha1.LocalReference { return v1alpha1.LocalReference{Name: name} }
	account, commands := ref("account"), ref("commands")
	cluster.Create(t,
		secret("s3", map[string]string{"accessKeyID": f.server.AccessKeyID, "secretAccessKey": f.server.SecretAccessKey}),
		tlsSecret(t, "s3-tls", f.server.CA),
		secret("account", map[string]string{"account.seed": server.AccountSeed, "account.id": server.AccountID}),
		secret("commands", map[string]string{"account.seed": server.CommandsSeed, "account.id": server.CommandsID}),
		tlsSecret(t, "nats-tls", server.CA),
		&v1alpha1.Site{ObjectMeta: meta("thule-hub"), Spec: v1alpha1.SiteSpec{
			Code: site,
			ObjectStore: v1alpha1.ObjectStore{Endpoint: f.server.URL(), Bucket: f.bucket, CredentialsSecretRef: ref("s3"),
				TLS: &v1alpha1.TLS{CASecretRef: new(ref("s3-tls"))}},
			JetStream: v1alpha1.JetStream{Servers: []string{server.URL()}, AccountKeySecretRef: &account, CommandAccountKeySecretRef: &commands,
				TLS: &v1alpha1.TLS{CertificateSecretRef: new(ref("nats-tls")), CASecretRef: new(ref("nats-tls"))}},
		}},
	)
	at := []string{"--kubeconfig", cluster.Kubeconfig, "-n", "aurora"}

	out, _ := must(t, append([]string{"ls", "--site", "thule-hub", "-o", "json"}, at...)...)
	if got := notices(t, out); len(got) != 4 {
		t.Errorf("%d objects, want 4:\n%s", len(got), out)
	}
	// The only Site of the namespace need not be named.
	out, _ = must(t, append([]string{"get", f.frame.Digest.String(), "--file", "-"}, at...)...)
	if out != "frame" {
		t.Errorf("got %q", out)
	}
	declare(t, js)
	out, _ = must(t, append([]string{"cat", "rank/26325/13.txt"}, at...)...)
	if out != "frame 2" {
		t.Errorf("by its alias: %q", out)
	}
	if _, _, err := run(t, append([]string{"cat", "old/nothing"}, at...)...); err == nil || !strings.Contains(err.Error(), "no object has this path") {
		t.Errorf("by the name of nothing: %v", err)
	}
	out, _ = must(t, append([]string{"ledger"}, at...)...)
	if !strings.Contains(out, "mag-1") || !strings.Contains(out, "KernelBuffer=4") {
		t.Errorf("ledger:\n%s", out)
	}
	putGapsAndDownloads(t, js)
	if out, err := call(t, Command(), append([]string{"gaps"}, at...)...); err != nil || !strings.Contains(out, "allsky-1") {
		t.Errorf("gaps: %v\n%s", err, out)
	}
	if out, err := call(t, Command(), append([]string{"report", "--day", "2026-11-21"}, at...)...); !errors.Is(err, errReportDiffers) || !strings.Contains(out, "model") {
		t.Errorf("report: %v\n%s", err, out)
	}
	if out, err := call(t, Command(), append([]string{"inspect", f.frame.Digest.String()}, at...)...); err != nil || !strings.Contains(out, "allsky-1") {
		t.Errorf("inspect: %v\n%s", err, out)
	}

	// A user that may request of this instrument alone, and publish no notice.
	must(t, append([]string{"retract", "allsky-1", f.frame.Digest.String(), "--reason", "dark", "--by", "anna", "--wait", "0"}, at...)...)
	announced, err := js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	m, err := announced.GetLastMsgForSubject(t.Context(), wire.RequestSubject(site, "allsky-1"))
	if err != nil {
		t.Fatal(err)
	}
	q, err := wire.Decode[wire.ArchiveRequest](m.Data)
	if err != nil || q.ID != f.frame.ID || q.Action != wire.ActionRetract || q.Reason != "dark" || q.By != "anna" {
		t.Errorf("%+v, %v", q, err)
	}
	if n := announced.CachedInfo().State.LastSeq; n != 1 {
		t.Errorf("%d messages, want the request alone", n)
	}

	rebuild := append([]string{"rebuild", "--age", "0s", "--scratch-dir", t.TempDir()}, at...)
	must(t, append(rebuild, "--tell")...)
	f.lose(t, wire.ManifestSitePrefix(site))
	if _, notes := must(t, rebuild...); !strings.Contains(notes, "3 days were made anew") || strings.Contains(notes, "JetStream is not known") {
		t.Errorf("rebuild said %q", notes)
	}
	if out, _ := must(t, append([]string{"ls", "-o", "json"}, at...)...); len(notices(t, out)) != 4 {
		t.Errorf("listed after a rebuild:\n%s", out)
	}

	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a Site that is not there":       {[]string{"ls", "--site", "elsewhere", "-n", "aurora"}, `no Site "elsewhere"`},
		"a namespace without Sites":      {[]string{"ls", "-n", "default"}, "no Site in namespace"},
		"a kubeconfig that is not there": {[]string{"ls", "--kubeconfig", "nowhere"}, "nowhere"},
	} {
		args := append([]string{"ls", "--kubeconfig", cluster.Kubeconfig}, c.args[1:]...)
		if _, _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, c.says)
		}
	}
	missing := &corev1.Secret{ObjectMeta: meta("s3")}
	if err := cluster.Delete(t.Context(), missing); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, append([]string{"ls"}, at...)...); err == nil || !strings.Contains(err.Error(), "spec.objectStore.credentialsSecretRef") {
		t.Errorf("without the Secret: %v", err)
	}
}
