// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/substorm/substorm/cli/up/pods"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/sender"
)

// movingSite is the Site of move-to-a-cluster.md. Its fields are the URLs of object store and NATS server, and the first of four ports, and the
// others.
const movingSite = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: try}
spec:
  code: try
  objectStore: {endpoint: %q, bucket: substorm, credentialsSecretRef: {name: s3}}
  jetStream:
    servers: [%q]
    accountKeySecretRef: {name: account}
    consumerAccountKeySecretRef: {name: consumers}
    commandAccountKeySecretRef: {name: commands}
    tls: {certificateSecretRef: {name: nats-tls}, caSecretRef: {name: nats-tls}}
    observations: {maxSize: 64Mi}
    notices: {maxSize: 64Mi}
  archivist: {partInterval: 1s}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: try}
spec: {siteRef: {name: try}, ports: {first: %[3]d, last: %[6]d}, service: {type: ClusterIP}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: try}
spec: {siteRef: {name: try}, replicas: 1}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec:
  siteRef: {name: try}
  type: AllSkyCamera
  listeners: [{name: frames, protocol: TCP, port: %[3]d}]
  access: {live: Public, archive: Public}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: product}
spec:
  siteRef: {name: try}
  type: Product
  listeners: [{name: pictures, protocol: HTTP, port: %[4]d}]
  archive: {mediaType: image/png}
  access: {live: Public, archive: Public}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: magnetometer}
spec:
  siteRef: {name: try}
  type: Magnetometer
  listeners: [{name: telemetry, protocol: UDP, port: %[5]d}]
  cadence: {interval: 1s}
  channels:
  - name: seconds
    source: {type: Datagrams}
    payload: {type: CSV}
    time: {source: Received}
    cadence: 1s
    parameters: [{name: H, type: Double, units: nT, csv: {column: 1}}]
  archive: {segment: {maxAge: 1m}}
  access: {live: Public, archive: Public}
---
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: everything}
spec: {siteRef: {name: try}}
`

// firstSample is the value of the first datagram; each has one more than the one before.
const firstSample = 20_000

// move is a Site that moves.
type move struct {
	t *testing.T
	// home is of the person who moves it, environment what the commands see, and kubeconfig that of where the Site is.
	home, kubeconfig string
	environment      []string
	// url is where a feed server of it serves.
	url string
	// frames, product and telemetry are its ports.
	frames, product, telemetry int
	// sent are the objects that have a receipt, by their instrument; samples are how many datagrams were sent.
	sent    map[string][][]byte
	samples int
	minio   *testenv.MinIOServer
	nats    *testenv.NATSServer
}

// TestMoveToACluster takes the steps of move-to-a-cluster.md: `substorm up` receives, and goes on as a Site of a cluster, whose
// programs are processes of this machine beside a real API server, NATS server and S3 server. Data that had a receipt is listed,
// once, and later data is listed beside it.
func TestMoveToACluster(t *testing.T) {
	need(t, "bash", "rclone", "jq", "perl")
	log.SetLogger(logr.Discard()) // of envtest
	m := newMove(t)
	blocks := markedBlocks(t, "how-to/move-to-a-cluster.md", t.Name())
	if len(blocks) != 6 {
		t.Fatalf("the page has %d blocks, this test runs 6", len(blocks))
	}
	standalone := testenv.StandaloneIn(t, filepath.Join(m.home, "substorm-data"), filepath.Join(m.home, "manifests"))
	standalone.Start()
	m.url, m.kubeconfig = standalone.URL, standalone.Kubeconfig
	m.run("kubectl wait --for=condition=Ready --timeout=180s site/try ingestgateway/try feedserver/try instrument/camera instrument/product instrument/magnetometer")
	m.sendFrame(1)
	m.sendProduct("2026/one.png", 2)
	m.sendSamples()
	m.awaitArchived()
	m.run(blocks[0]) // copy
	m.sendFrame(3)
	m.sendProduct(".hidden/100%/50%20.png", 4)
	m.run(blocks[1]) // stop receiving
	m.run(strings.ReplaceAll(blocks[2], "sleep 10", "sleep 1"))
	standalone.Stop()
	m.run(blocks[3]) // copy what has changed

	m.startCluster()
	m.awaitConflict()
	m.run(blocks[4]) // start
	if said := m.run(blocks[5]); strings.Contains(said, "Missing") || strings.Contains(said, "Unlisted") {
		t.Errorf("the check said\n%s", said)
	}
	m.awaitArchived()
	m.announced()

	// Data that is sent again is known, and new data is listed beside the old.
	m.resend()
	m.sendFrame(5)
	m.sendProduct("2026/two.png", 6)
	m.sendSamples()
	m.awaitArchived()
	m.run("until substorm archive verify --age 0s; do sleep 1; done") // segments are listed a moment after they are stored
}

// need skips the test where a tool is missing.
func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed, and CI must run this test: see hack/needs.sh", tool)
			}
			t.Skipf("%s is not installed", tool)
		}
	}
}

// newMove starts the servers that the manifests name, and writes the manifests.
func newMove(t *testing.T) *move {
	t.Helper()
	m := &move{t: t, home: t.TempDir(), sent: map[string][][]byte{}, minio: testenv.MinIO(t, testenv.MinIOOptions{}),
		nats: testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, AnyClient: true, Domain: "try"})}
	first := testenv.FreePorts(t, 4)
	m.frames, m.product, m.telemetry = first, first+1, first+2
	bin := filepath.Join(m.home, "bin")
	m.write("manifests/site.yaml", fmt.Sprintf(movingSite, m.minio.URL(), m.nats.URL(), first, first+1, first+2, first+3))
	m.write("bin/readme", "programs of this test")
	for name, path := range map[string]string{"substorm": testenv.Program(t, "cli"), "kubectl": testenv.Path(t, "kubectl")} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.environment = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + m.home, "RCLONE_CONFIG=/dev/null", "RCLONE_CONFIG_NEW_TYPE=s3",
		"RCLONE_CONFIG_NEW_PROVIDER=Minio", "RCLONE_CONFIG_NEW_ENDPOINT=" + m.minio.URL(), "RCLONE_CONFIG_NEW_REGION=us-east-1",
		"RCLONE_CONFIG_NEW_ACCESS_KEY_ID=" + m.minio.AccessKeyID, "RCLONE_CONFIG_NEW_SECRET_ACCESS_KEY=" + m.minio.SecretAccessKey}
	return m
}

func (m *move) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// run runs commands in bash, in the home folder, and returns what they said.
func (m *move) run(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

func (m *move) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*testenv.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+script)
	c.Dir, c.Env = m.home, append([]string{"KUBECONFIG=" + m.kubeconfig}, m.environment...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (m *move) eventually(what string, try func() error) {
	m.t.Helper()
	var err error
	for range testenv.Attempts() {
		if err = try(); err == nil {
			return
		}
	}
	m.t.Fatalf("%s: %v", what, err)
}

// object is one like no other.
func (m *move) object(number int) []byte {
	return bytes.Repeat([]byte{byte(number)}, 100_000+number)
}

func (m *move) sendFrame(number int) {
	m.t.Helper()
	frame := m.object(number)
	m.eventually("a frame is receipted", func() error { return testenv.SendObject(m.frames, frame) })
	m.sent["camera"] = append(m.sent["camera"], frame)
}

func (m *move) sendProduct(name string, number int) {
	m.t.Helper()
	picture := m.object(number)
	m.eventually("a product is receipted", func() error { return m.put(name, picture) })
	m.sent["product"] = append(m.sent["product"], picture)
}

func (m *move) put(name string, body []byte) error {
	at := url.URL{Scheme: "http", Host: testenv.Loopback(m.product), Path: "/in/product/" + name}
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodPut, at.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		return fmt.Errorf("PUT %s: %s: %s", at.Path, resp.Status, text)
	}
	return nil
}

// resend sends once more what has a receipt already, as senders do that did not see it.
func (m *move) resend() {
	m.t.Helper()
	m.eventually("a frame is receipted again", func() error { return testenv.SendObject(m.frames, m.sent["camera"][0]) })
	m.eventually("a product is receipted again", func() error { return m.put("2026/one.png", m.sent["product"][0]) })
}

func (m *move) sendSamples() {
	m.t.Helper()
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf("%d.5", firstSample+m.samples+i))
	}
	m.samples += len(lines)
	sendAll(m.t, sender.Config{Addresses: []string{testenv.Loopback(m.telemetry)}, UDP: true, Lines: true, Rate: 100, Paths: []string{"-"},
		Stdin: strings.NewReader(strings.Join(lines, "\n"))})
}

// awaitArchived waits until the archive lists each object once and has its bytes, and HAPI has all samples.
func (m *move) awaitArchived() {
	m.t.Helper()
	for instrument, objects := range m.sent {
		m.eventually(instrument+" is listed", func() error { return m.listed(instrument, objects) })
		for _, object := range objects {
			digest := fmt.Sprintf("%x", sha256.Sum256(object))
			if out := m.run("substorm archive cat " + digest + " | sha256sum"); !strings.HasPrefix(out, digest) {
				m.t.Errorf("%s %s has other bytes: %s", instrument, digest, out)
			}
		}
	}
	m.eventually("HAPI has all samples", m.sampled)
	if _, err := m.get("/archive/product/n/2026/one.png"); err != nil {
		m.t.Error(err)
	}
}

// sampled says whether HAPI has all samples, once each.
func (m *move) sampled() error {
	text, err := m.get("/hapi/info?dataset=magnetometer/seconds")
	var has struct{ StartDate, StopDate string }
	if err == nil {
		err = json.Unmarshal([]byte(text), &has)
	}
	if err != nil {
		return err
	}
	text, err = m.get("/hapi/data?dataset=magnetometer/seconds&start=" + has.StartDate + "&stop=" + has.StopDate)
	for i := range m.samples {
		if value := fmt.Sprintf(",%d.5\n", firstSample+i); err == nil && strings.Count(text, value) != 1 {
			err = fmt.Errorf("%d samples, sample %d is there %d times:\n%s", strings.Count(text, "\n"), i, strings.Count(text, value), text)
		}
	}
	return err
}

// listed says whether the archive lists these objects of an instrument, once each, and no others.
func (m *move) listed(instrument string, objects [][]byte) error {
	out, err := m.try("substorm archive ls --instrument " + instrument + " -o json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, object := range objects {
		if n := strings.Count(out, fmt.Sprintf(`"sha256":"%x"`, sha256.Sum256(object))); n != 1 {
			return fmt.Errorf("one of %d bytes is listed %d times in\n%s", len(object), n, out)
		}
	}
	if len(lines) != len(objects) {
		return fmt.Errorf("%d objects are listed, %d were sent:\n%s", len(lines), len(objects), out)
	}
	return nil
}

func (m *move) get(path string) (string, error) {
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.url+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

// startCluster starts a cluster with the Secrets that the manifests name and an operator. It has no nodes: this process runs the programs of its pods.
func (m *move) startCluster() {
	m.t.Helper()
	api := testenv.Kubernetes(m.t)
	admin := api.Kubeconfig(m.t, "admin", "system:masters")
	text, err := os.ReadFile(admin)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(".kube/config", string(text))
	m.kubeconfig = filepath.Join(m.home, ".kube", "config")
	scheme, err := operator.NewScheme()
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := client.NewWithWatch(api.Config, client.Options{Scheme: scheme})
	if err != nil {
		m.t.Fatal(err)
	}
	certificate, key := m.nats.CA.Issue(m.t, "operator")
	for name, data := range map[string]map[string]string{
		"s3":        {workload.KeyAccessKeyID: m.minio.AccessKeyID, workload.KeySecretAccessKey: m.minio.SecretAccessKey},
		"account":   {"account.seed": m.nats.AccountSeed, "account.id": m.nats.AccountID},
		"consumers": {"account.seed": m.nats.ConsumersSeed, "account.id": m.nats.ConsumersID},
		"commands":  {"account.seed": m.nats.CommandsSeed, "account.id": m.nats.CommandsID},
		"nats-tls":  {"ca.crt": string(m.nats.CA.PEM), "tls.crt": string(certificate), "tls.key": string(key)},
	} {
		if err := c.Create(m.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, StringData: data}); err != nil {
			m.t.Fatal(err)
		}
	}
	testenv.StartOperator(m.t, admin, "--leader-election=false", "--watch-namespaces=default")
	m.startPods(c)
}

// startPods runs the pods of the cluster's workloads, one of each.
func (m *move) startPods(c client.WithWatch) {
	m.t.Helper()
	folder := m.t.TempDir()
	logs, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		m.t.Fatal(err)
	}
	listen := testenv.Loopback(testenv.FreePort(m.t))
	m.url = "http://" + listen
	nodes := pods.New(pods.Config{
		Client: everyReplica(c), Folder: folder, Log: slog.New(slog.NewTextHandler(logs, nil)), Last: []string{workload.ArchivistProgram},
		Programs: map[string]pods.Program{
			"gateway": inProcess(m.t, "ingest-gateway", logs), workload.ArchivistProgram: inProcess(m.t, "archivist", logs), workload.FeedServerProgram: inProcess(m.t, "feed-server", logs)},
		Override: func(p pods.Started) []string {
			flags := []string{"--listen-http=" + p.Health}
			switch p.Program {
			case "gateway":
				flags = append(flags, "--replica-listen=")
			case workload.FeedServerProgram:
				flags = append(flags, "--listen="+listen)
			}
			return flags
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); nodes.Run(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		<-done
		if m.t.Failed() {
			text, _ := os.ReadFile(logs.Name())
			m.t.Logf("the last of the pods' logs:\n%s", text[max(0, len(text)-20_000):])
		}
	})
}

// everyReplica says of a Deployment's one pod what it is for as many as were asked for: two archivists.
func everyReplica(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
		if d, is := o.(*appsv1.Deployment); is && d.Status.ReadyReplicas > 0 {
			n := *d.Spec.Replicas
			d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UnavailableReplicas = n, n, n, n, 0
		}
		return c.SubResource(name).Update(ctx, o, opts...)
	}})
}

// inProcess runs a program of this checkout in a process of its own, which dies with this one.
func inProcess(t *testing.T, name string, logs *os.File) pods.Program {
	t.Helper()
	path := testenv.Program(t, name)
	return func(ctx context.Context, arguments []string) error {
		runtime.LockOSThread() // the death signal comes when the thread that started the child ends
		defer runtime.UnlockOSThread()
		c := exec.CommandContext(ctx, path, arguments...)
		c.Stdout, c.Stderr = logs, logs
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = testenv.Patience
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := c.Run()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// awaitConflict applies the manifests on the cluster and waits until the Site says whose the bucket is.
func (m *move) awaitConflict() {
	m.t.Helper()
	uid, err := os.ReadFile(filepath.Join(m.home, "uid.txt"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.run("kubectl apply -f manifests/")
	m.eventually("the Site is not accepted", func() error {
		out, err := m.try(`kubectl get site try -o jsonpath='{range .status.conditions[?(@.type=="Accepted")]}{.reason} {.message}{end}'`)
		if err == nil && (!strings.HasPrefix(out, "Conflict ") || !strings.HasSuffix(out, "substorm.dev/take-over="+string(uid))) {
			err = errors.New(out)
		}
		return err
	})
	if out := m.run("kubectl get deployments -o name"); strings.Contains(out, "archivist") {
		m.t.Errorf("there is an archivist for the bucket of another Site: %s", out)
	}
}
