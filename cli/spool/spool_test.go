// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const site = "thule"

func run(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetArgs(args)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// house is a Site on real servers, in a real API server.
type house struct {
	js      jetstream.JetStream
	store   objectstore.Store
	cluster *kubetest.Cluster
	at      []string
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "aurora", Name: name} }

func newHouse(t *testing.T) *house {
	t.Helper()
	nats := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Domain: site})
	minio := testenv.MinIO(t, testenv.MinIOOptions{TLS: true})
	h := &house{js: nats.JetStream(t), store: minio.Bucket(t, "archive"), cluster: kubetest.Start(t)}
	testenv.CreateSite(t, h.js, site)
	secret := func(name string, data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: meta(name), StringData: data}
	}
	tlsSecret := func(name string, ca *testenv.CA) *corev1.Secret {
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
	ref := func(name string) v1alpha1.LocalReference { return v1alpha1.LocalReference{Name: name} }
	account, commands := ref("account"), ref("commands")
	h.cluster.Create(t,
		secret("s3", map[string]string{"accessKeyID": minio.AccessKeyID, "secretAccessKey": minio.SecretAccessKey}),
		tlsSecret("s3-tls", minio.CA), tlsSecret("nats-tls", nats.CA),
		secret("account", map[string]string{"account.seed": nats.AccountSeed, "account.id": nats.AccountID}),
		secret("commands", map[string]string{"account.seed": nats.CommandsSeed, "account.id": nats.CommandsID}),
		&v1alpha1.Site{ObjectMeta: meta("thule-hub"), Spec: v1alpha1.SiteSpec{
			Code: site,
			ObjectStore: v1alpha1.ObjectStore{Endpoint: minio.URL(), Bucket: "archive", CredentialsSecretRef: ref("s3"),
				TLS: &v1alpha1.TLS{CASecretRef: new(ref("s3-tls"))}},
			JetStream: v1alpha1.JetStream{Servers: []string{nats.URL()}, AccountKeySecretRef: &account, CommandAccountKeySecretRef: &commands,
				TLS: &v1alpha1.TLS{CertificateSecretRef: new(ref("nats-tls")), CASecretRef: new(ref("nats-tls"))}},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("data-north-1"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}},
	)
	h.at = []string{"--kubeconfig", h.cluster.Kubeconfig, "-n", "aurora"}
	return h
}

func (h *house) put(t *testing.T, bucket, key string, value []byte, err error) {
	t.Helper()
	kv, err2 := h.js.KeyValue(t.Context(), bucket)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if _, err := kv.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// list stores a manifest of objects of ten bytes that incarnations of north-1 received.
func (h *house) list(t *testing.T, instrument string, day wire.Day, objects map[string]int) {
	t.Helper()
	start, err := day.Start()
	if err != nil {
		t.Fatal(err)
	}
	var records []wire.Record
	for incarnation, n := range objects {
		for i := range n {
			digest := wire.Digest(sha256.Sum256([]byte(incarnation + strconv.Itoa(i))))
			key := wire.RawKey(site, instrument, start, digest)
			records = append(records, wire.Record{ID: key, Key: key, Size: 10, Digest: digest, State: wire.StateCurrent, ReceivedAt: start,
				TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessVerified, Gateway: "north-1", Incarnation: incarnation})
		}
	}
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day}, Records: records}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	key := wire.ManifestPartKey(site, instrument, day, 1)
	if err := h.store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
}

func (h *house) reports(t *testing.T, s wire.GatewayStatus) {
	t.Helper()
	s.Pool, s.Incarnation, s.ReportedAt = "north", "b", time.Now()
	value, err := wire.Encode(s)
	h.put(t, wire.StatusBucket(site), wire.GatewayStatusKey(s.Gateway), value, err)
}

func (h *house) entry(t *testing.T, key string) (wire.LedgerEntry, error) {
	t.Helper()
	kv, err := h.js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), key)
	if err != nil {
		return wire.LedgerEntry{}, err
	}
	return wire.Decode[wire.LedgerEntry](e.Value())
}

// A pod with a spool is lost: it is listed, given up when it is long silent and
// not before, its ledger closes with a named loss, and report and volume go. All
// with a JetStream user that may do no more than that.
func TestAbandon(t *testing.T) {
	h := newHouse(t)
	day := wire.DayOf(time.Now())
	received, err := wire.Encode(incarnations(4, 9))
	h.put(t, wire.LedgerBucket(site), wire.LedgerKey("camera", day, wire.StepReceived, "north-1"), received, err)
	h.put(t, wire.LedgerBucket(site), wire.LedgerKey("camera", day, wire.StepReceived, "north-0"), received, err)
	h.list(t, "camera", day, map[string]int{"a": 4, "b": 6})
	oldest := time.Now().Add(-3 * time.Hour)
	h.reports(t, wire.GatewayStatus{Gateway: "north-1", Node: "worker-2", Spool: &wire.SpoolStatus{Objects: 5, Bytes: 50, Oldest: &oldest}})
	h.reports(t, wire.GatewayStatus{Gateway: "north-0", Copies: []wire.CopiesStatus{{Owner: "north-1", Objects: 1, Bytes: 10}}})

	// The pod ran on another volume before, whose report stands beside it.
	earlier := wire.VolumeReporter("north-1", "0a1b2c3d")
	h.reports(t, wire.GatewayStatus{Gateway: earlier, Volume: "0a1b2c3d", Spool: &wire.SpoolStatus{Objects: 2, Bytes: 20, Oldest: &oldest}})

	out, err := run(t, "", append([]string{"ls"}, h.at...)...)
	if err != nil || !strings.Contains(out, "worker-2") || !strings.Contains(out, "3h00m") || !strings.Contains(out, "north-1 (1)") {
		t.Errorf("%v\n%s", err, out)
	}
	abandon := append([]string{"abandon", "north-1"}, h.at...)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"it reports":    {abandon, "drains its spool itself"},
		"no such pod":   {append([]string{"abandon", "north-7"}, h.at...), "north-0, north-1"},
		"which volume?": {[]string{"abandon", "north-1", "--code", site, "--delete-volume"}, "needs the cluster"},
	} {
		if _, err := run(t, "north-1\n", c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, c.says)
		}
	}

	time.Sleep(silentAfter) // north-1 no longer reports
	h.reports(t, wire.GatewayStatus{Gateway: "north-0", Copies: []wire.CopiesStatus{{Owner: "north-1", Objects: 1, Bytes: 10}}})
	if _, err := run(t, "north-1\n", abandon...); err == nil || !strings.Contains(err.Error(), "north-0 has copies of 1 objects") {
		t.Errorf("while a peer has copies: %v", err)
	}
	h.reports(t, wire.GatewayStatus{Gateway: "north-0"})
	out, err = run(t, "yes\n", abandon...)
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(out, "camera") {
		t.Errorf("not confirmed: %v\n%s", err, out)
	}
	if e, err := h.entry(t, wire.LedgerKey("camera", day, wire.StepReceived, "north-1")); err != nil || e.Sum().Objects != 13 {
		t.Errorf("not confirmed, and yet: %+v, %v", e, err)
	}

	h.abandonEarlier(t, earlier, day)

	out, err = run(t, "north-1\n", append(abandon, "--delete-volume")...)
	if err != nil || !strings.Contains(out, "5 objects, 50 B, are lost") {
		t.Fatalf("%v\n%s", err, out)
	}
	e, err := h.entry(t, wire.LedgerKey("camera", day, wire.StepReceived, "north-1"))
	if s := e.Sum(); err != nil || s.Objects != 13 || s.Resolved != 3 || s.Unfinished[wire.CauseSpoolAbandoned] != 3 || s.UnfinishedBytes != 30 {
		t.Errorf("camera: %+v, %v", s, err)
	}
	e, err = h.entry(t, wire.LedgerKey(wire.UnknownInstrument, day, wire.StepReceived, "north-1"))
	if s := e.Sum(); err != nil || s.Unfinished[wire.CauseSpoolAbandoned] != 2 {
		t.Errorf("what no column knew: %+v, %v", s, err)
	}
	if e, err := h.entry(t, wire.LedgerKey("camera", day, wire.StepReceived, "north-0")); err != nil || e.Sum().Objects != 13 {
		t.Errorf("another pod's column: %+v, %v", e.Sum(), err)
	}
	if out, err = run(t, "", append([]string{"ls"}, h.at...)...); err != nil || strings.Contains(out, "north-1") || !strings.Contains(out, "north-0") {
		t.Errorf("%v\n%s", err, out)
	}
	claim := &corev1.PersistentVolumeClaim{}
	err = h.cluster.Get(t.Context(), client.ObjectKey{Namespace: "aurora", Name: "data-north-1"}, claim)
	if !apierrors.IsNotFound(err) && claim.DeletionTimestamp == nil {
		t.Errorf("the volume claim is there: %v", err)
	}
	if _, err := run(t, "", append(abandon, "--yes")...); err == nil || !strings.Contains(err.Error(), "given up before") {
		t.Errorf("again: %v", err)
	}
}

// abandonEarlier gives up the volume on which north-1 ran before, and sees that north-1 itself keeps all.
func (h *house) abandonEarlier(t *testing.T, earlier string, day wire.Day) {
	t.Helper()
	abandon := append([]string{"abandon", earlier}, h.at...)
	_, err := run(t, earlier+"\n", append(abandon, "--delete-volume")...)
	if err == nil || !strings.Contains(err.Error(), "data-north-1 belongs to the pod of this name") {
		t.Errorf("with the volume: %v", err)
	}
	if _, err := h.entry(t, wire.LedgerKey(wire.UnknownInstrument, day, wire.StepReceived, earlier)); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("refused, and yet the ledger has %v", err)
	}
	out, err := run(t, earlier+"\n", abandon...)
	if err != nil || !strings.Contains(out, "2 objects, 20 B, are lost with the spool of "+earlier) || strings.Contains(out, "data-"+earlier) {
		t.Fatalf("%v\n%s", err, out)
	}
	e, err := h.entry(t, wire.LedgerKey(wire.UnknownInstrument, day, wire.StepReceived, earlier))
	if s := e.Sum(); err != nil || s.Unfinished[wire.CauseSpoolAbandoned] != 2 || s.UnfinishedBytes != 20 {
		t.Errorf("what no column knows: %+v, %v", s, err)
	}
	if e, err := h.entry(t, wire.LedgerKey("camera", day, wire.StepReceived, "north-1")); err != nil || e.Sum().Objects != 13 || len(e.Sum().Unfinished) > 0 {
		t.Errorf("the pod's own column: %+v, %v", e.Sum(), err)
	}
	if out, err := run(t, "", append([]string{"ls"}, h.at...)...); err != nil || strings.Contains(out, earlier) || !strings.Contains(out, "north-1") {
		t.Errorf("%v\n%s", err, out)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := h.cluster.Get(t.Context(), client.ObjectKey{Namespace: "aurora", Name: "data-north-1"}, claim); err != nil || claim.DeletionTimestamp != nil {
		t.Errorf("the claim of the pod that runs: %v", err)
	}
}
