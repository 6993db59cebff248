// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Directives that cobra gives to a shell in addition to its arguments.
const (
	noFiles   = ":4"
	filesToo  = ":0"
	onlyDirs  = ":16"
	noCluster = "no-such-kubeconfig"
)

// TestCompletion asks as a shell does, of a real API server. The shell leaves out what does not
// begin as the word does.
func TestCompletion(t *testing.T) {
	cluster := kubetest.Start(t)
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "aurora", Name: name} }
	ref := v1alpha1.LocalReference{Name: "demo"}
	pod := func(name, component string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: at(name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		p.Labels = map[string]string{workload.LabelComponent: component}
		return p
	}
	cluster.Create(t,
		&v1alpha1.Site{ObjectMeta: at("demo"), Spec: v1alpha1.SiteSpec{Code: "demo",
			ObjectStore: v1alpha1.ObjectStore{Endpoint: "https://s3.aurora.svc:9000", Bucket: "archive", CredentialsSecretRef: v1alpha1.LocalReference{Name: "s3"}},
			JetStream:   v1alpha1.JetStream{Servers: []string{"tls://nats.aurora.svc:4222"}, CredentialsSecretRef: &v1alpha1.LocalReference{Name: "nats"}}}},
		&v1alpha1.IngestGateway{ObjectMeta: at("north"), Spec: v1alpha1.IngestGatewaySpec{SiteRef: ref}},
		&v1alpha1.Instrument{ObjectMeta: at("allsky-1"), Spec: v1alpha1.InstrumentSpec{SiteRef: ref, Type: "AllSkyCamera",
			Listeners: []v1alpha1.Listener{{Name: "telemetry", Protocol: v1alpha1.ListenerUDP, Port: 30102}}}},
		&v1alpha1.FeedConsumer{ObjectMeta: at("model"), Spec: v1alpha1.FeedConsumerSpec{FeedRef: v1alpha1.LocalReference{Name: "everything"},
			Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}}},
		&v1alpha1.MirrorPartner{ObjectMeta: at("university"), Spec: v1alpha1.MirrorPartnerSpec{SiteRef: ref, Direction: v1alpha1.MirrorPush, Protocol: v1alpha1.MirrorProtocolRsync,
			Rsync:      &v1alpha1.MirrorRsync{Transport: v1alpha1.MirrorRsyncOverDaemon, Daemon: &v1alpha1.MirrorRsyncDaemon{Address: "rsync.example:873", Module: "aurora"}},
			Continuous: &v1alpha1.MirrorContinuous{}}},
		pod("north-0", "gateway"), pod("nats-0", "nats"))
	here := []string{"--kubeconfig", cluster.Kubeconfig, "-n", "aurora"}
	none := []string{"--kubeconfig", filepath.Join(t.TempDir(), noCluster)}
	for _, c := range []struct {
		of, words []string
		want      string
	}{
		{here, []string{"status", "--site", ""}, "demo\n" + noFiles},
		{here, []string{"archive", "ls", "--site", ""}, "demo\n" + noFiles},
		{here, []string{"archive", "ls", "-i", "all"}, "allsky-1\n" + noFiles},
		{here, []string{"adopt", "--instrument", ""}, "allsky-1\n" + noFiles},
		{here, []string{"archive", "retract", ""}, "allsky-1\n" + noFiles},
		{here, []string{"archive", "retract", "allsky-1", ""}, noFiles},
		{here, []string{"credentials", "rotate", ""}, "gateway\narchivist\nfeed-server\nmirror\nconsumer\n" + noFiles},
		{here, []string{"credentials", "rotate", "gateway", ""}, "north\n" + noFiles},
		{here, []string{"credentials", "rotate", "archivist", ""}, "demo\n" + noFiles},
		{here, []string{"credentials", "rotate", "consumer", ""}, "model\n" + noFiles},
		{here, []string{"credentials", "rotate", "mirror", ""}, "university\n" + noFiles},
		{here, []string{"mirror", "run", ""}, "university\n" + noFiles},
		{here, []string{"spool", "abandon", ""}, "north-0\n" + noFiles},
		{here, []string{"status", "--namespace", "aur"}, "aurora\ndefault\nkube-node-lease\nkube-public\nkube-system\n" + noFiles},
		{here, []string{"archive", "ls", "--code", "demo", "-i", ""}, noFiles},
		{none, []string{"archive", "ls", "-i", ""}, noFiles},
		{none, []string{"archive", "ls", "-o", ""}, "table\nwide\njson\nyaml\n" + noFiles},
		{none, []string{"archive", "ls", "--state", "Pu"}, "Current\nSuperseded\nRetracted\nExpired\nPurged\nDuplicate\n" + noFiles},
		{none, []string{"archive", "ls", "--since", ""}, "today\nyesterday\n" + noFiles},
		{none, []string{"archive", "ls", ""}, noFiles},
		{none, []string{"archive", "gaps", "--cause", "Li"}, "Link\nInstrument\nRefused\nLost\nUndecodable\nRetracted\n" + noFiles},
		{none, []string{"archive", "get", "x", "--file", ""}, filesToo},
		{none, []string{"archive", "verify", "--scratch-dir", ""}, onlyDirs},
		{none, []string{"import", ""}, filesToo},
		{nil, []string{"send", "--framing", ""}, "until-close\nlength-prefixed\n" + noFiles},
		{nil, []string{"send", "--to", ""}, noFiles},
		{nil, []string{"send", "--to", "x:1", "fra"}, filesToo},
		{nil, []string{"send", "--watch", ""}, onlyDirs},
		{nil, []string{"simulate", "--model", "o"}, "rtemp\nuarc\noasis\nevlbi\n" + filesToo},
	} {
		last := len(c.words) - 1
		for last > 0 && strings.HasPrefix(c.words[last-1], "-") { // a flag and what is asked of it stay together
			last--
		}
		args := slices.Concat([]string{"__complete"}, c.words[:last], c.of, c.words[last:])
		out, stderr, code := runProgram(t, "substorm", args...)
		if code != 0 || out != c.want+"\n" || strings.Contains(stderr, "error") {
			t.Errorf("%q: exit code %d, got %q, want %q\n%s", c.words, code, out, c.want, stderr)
		}
	}
	if out, _, _ := runProgram(t, "substorm", "__complete", "status", "--kubeconfig", cluster.Kubeconfig, "--context", ""); !strings.HasSuffix(out, noFiles+"\n") || strings.Count(out, "\n") < 2 {
		t.Errorf("contexts: %q", out)
	}
	if _, err := os.Stat(none[1]); err == nil {
		t.Errorf("%s was made", none[1])
	}
}
