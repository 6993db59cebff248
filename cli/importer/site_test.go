// SPDX-License-Identifier: Apache-2.0

//go:build linux

package importer

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestHelp: the help has examples whose templates make sense, and all fields.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	cmd := Command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	templates := regexp.MustCompile(`--name-template '([^']+)'`).FindAllStringSubmatch(out.String(), -1)
	if len(templates) < 3 {
		t.Errorf("only %d examples:\n%s", len(templates), out.String())
	}
	for _, found := range templates {
		if _, err := naming.Parse(found[1]); err != nil {
			t.Error(err)
		}
	}
	for _, f := range naming.Fields {
		if !strings.Contains(out.String(), "{"+f.Name+"}") {
			t.Errorf("nothing about {%s}", f.Name)
		}
	}
}

// TestSiteInACluster: everything comes from the Site and its Secrets, with a
// JetStream user that may do just what it takes.
func TestSiteInACluster(t *testing.T) {
	server, minio := testenv.NATS(t, testenv.NATSOptions{Operator: true, Domain: site}), testenv.MinIO(t, testenv.MinIOOptions{})
	l := &lab{t: t, js: server.JetStream(t), store: minio.Bucket(t, "archive")}
	testenv.CreateSite(t, l.js, site)
	l.declare()
	cluster := kubetest.Start(t)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "aurora", Name: name} }
	ref := func(name string) v1alpha1.LocalReference { return v1alpha1.LocalReference{Name: name} }
	account := ref("account")
	cluster.Create(t,
		&corev1.Secret{ObjectMeta: meta("s3"), StringData: map[string]string{"accessKeyID": minio.AccessKeyID, "secretAccessKey": minio.SecretAccessKey}},
		&corev1.Secret{ObjectMeta: meta("account"), StringData: map[string]string{"account.seed": server.AccountSeed, "account.id": server.AccountID}},
		&v1alpha1.Site{ObjectMeta: meta("thule-hub"), Spec: v1alpha1.SiteSpec{
			Code:        site,
			ObjectStore: v1alpha1.ObjectStore{Endpoint: minio.URL(), Bucket: "archive", CredentialsSecretRef: ref("s3")},
			JetStream:   v1alpha1.JetStream{Servers: []string{server.URL()}, AccountKeySecretRef: &account},
		}},
	)
	l.flags = []string{"--kubeconfig", cluster.Kubeconfig, "-n", "aurora"}
	dir := t.TempDir()
	writeFiles(t, dir, frames(20)...)
	if got := l.must(dir); got.Registered != 20 {
		t.Errorf("%+v", got.Summary)
	}
	if n := l.announcedSoFar(); n != 20 {
		t.Errorf("%d notices, want 20", n)
	}
	// No archivist lists them here: another run says so rather than import all again.
	if _, err := l.run(dir, "--wait", "3s"); err == nil || !strings.Contains(err.Error(), "does a gateway run?") {
		t.Errorf("without an archivist: %v", err)
	}
}

// declare writes the instrument's entry of the registry.
func (l *lab) declare() {
	l.t.Helper()
	registry, err := l.js.KeyValue(l.t.Context(), wire.RegistryBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	value, err := wire.Encode(testenv.InstrumentTCP(instrument, 30_000))
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := registry.Put(l.t.Context(), wire.RegistryInstrumentKey(instrument), value); err != nil {
		l.t.Fatal(err)
	}
}

// TestSpaceForGateways: an import leaves a part of the stream to the notices on which receipts wait, and continues when there is space.
func TestSpaceForGateways(t *testing.T) {
	server, minio := testenv.NATS(t, testenv.NATSOptions{}), testenv.MinIO(t, testenv.MinIOOptions{})
	l := &lab{t: t, js: server.JetStream(t), store: minio.Bucket(t, "archive")}
	testenv.CreateSite(t, l.js, site)
	notices, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	other := make([]byte, 900_000)
	for i := 0; ; i++ { // another instrument's, up to four fifths
		info, err := notices.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if float64(info.State.Bytes) > 0.8*float64(info.Config.MaxBytes) {
			break
		}
		m := nats.NewMsg(wire.NoticeSubject(site, "another"))
		m.Data = other
		m.Header.Set(wire.HeaderMessageID, fmt.Sprint(i))
		if _, err := l.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	full, err := notices.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	r := newReport(Config{Notes: noteWriter{"three quarters full", told}, Out: &bytes.Buffer{}})
	counted := make(chan wire.Record, 1)
	failed, fail := context.WithCancelCause(t.Context())
	a, err := newAnnouncer(t.Context(), l.js, site, r, func(r wire.Record) { counted <- r }, fail)
	if err != nil {
		t.Fatal(err)
	}
	queued := make(chan error, 1)
	go func() {
		queued <- a.announce(t.Context(), wire.Notice{Site: site, Instrument: instrument, Record: wire.Record{ID: "x", Key: "x", State: wire.StateCurrent, ReceivedAt: time.Now()}})
	}()
	<-told
	if info, err := notices.Info(t.Context()); err != nil || info.State.LastSeq != full.State.LastSeq {
		t.Errorf("it published although there was no space: %v", err)
	}
	if err := notices.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-queued; err != nil {
		t.Error(err)
	}
	select {
	case <-counted:
	case <-failed.Done():
		t.Error(context.Cause(failed))
	}
	if err := a.close(t.Context()); err != nil {
		t.Error(err)
	}
}

// noteWriter closes told at the first note that says something.
type noteWriter struct {
	says string
	told chan struct{}
}

func (w noteWriter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.says) {
		close(w.told)
	}
	return len(p), nil
}
