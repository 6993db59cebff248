// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const leafSite = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: north}
spec:
  code: north
  objectStore: {endpoint: "https://s3.example", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: nats}}
  archivist: {partInterval: 1s}
  %[2]s
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: north}
spec: {siteRef: {name: north}, service: {type: LoadBalancer}, ports: {first: %[1]d, last: %[1]d}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: north}
spec: {siteRef: {name: north}}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec:
  siteRef: {name: north}
  type: AllSkyCamera
  listeners: [{name: frames, protocol: TCP, port: %[1]d}]
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: magnetometer}
spec:
  siteRef: {name: north}
  type: Magnetometer
  listeners: [{name: telemetry, protocol: UDP, port: %[1]d}]
  archive: {segment: {maxAge: 1s}}
`

// leaf is a substorm up whose Site is a leaf.
type leaf struct {
	*testenv.Standalone
	t         *testing.T
	port      int
	manifests string
	sent      int
}

// write declares the Site with this part of its spec, and these Secrets.
func (l *leaf) write(upstream string, secrets ...string) {
	l.t.Helper()
	// The Secrets first: an upstream that names one which is not there would have its say in between.
	for name, text := range map[string]string{"a-secrets.yaml": strings.Join(secrets, ""), "site.yaml": fmt.Sprintf(leafSite, l.port, upstream)} {
		if err := os.WriteFile(filepath.Join(l.manifests, name), []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *leaf) kubectl(args ...string) (string, error) {
	c := exec.Command(testenv.Path(l.t, "kubectl"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig, "HOME="+l.DataDir)
	out, err := c.CombinedOutput()
	return string(out), err
}

// upstream waits for what the condition UpstreamReachable says; status and reason are "" if it is not set.
func (l *leaf) upstream(want string, says ...string) {
	l.t.Helper()
	eventually(l.t, "UpstreamReachable is "+want, func() error {
		is, err := l.kubectl("get", "site/north", "-o", `jsonpath={range .status.conditions[?(@.type=="UpstreamReachable")]}{.status}/{.reason}: {.message}{end}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, is)
		}
		if status, _, _ := strings.Cut(is, ":"); status != want {
			return fmt.Errorf("it is %q", is)
		}
		for _, part := range says {
			if !strings.Contains(is, part) {
				return fmt.Errorf("it says %q, and not %q", is, part)
			}
		}
		return nil
	})
}

// send has the Site receive some objects and datagrams.
func (l *leaf) send() {
	l.t.Helper()
	for range 5 {
		frame := bytes.Repeat([]byte{byte(l.sent)}, 1000+l.sent)
		eventually(l.t, "a frame is receipted", func() error { return testenv.SendObject(l.port, frame) })
		conn, err := net.Dial("udp", testenv.Loopback(l.port))
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "datagram %d", l.sent); err != nil {
			l.t.Fatal(err)
		}
		_ = conn.Close()
		l.sent++
	}
}

// streams are those of the leaf itself.
func (l *leaf) streams() jetstream.JetStream {
	l.t.Helper()
	nc, err := stream.Connect(l.t.Context(), stream.Config{Servers: []string{stream.SocketScheme + filepath.Join(l.DataDir, "nats", "socket")}, Credentials: l.user()})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		l.t.Fatal(err)
	}
	return js
}

// user are the credentials of one who may do everything in the account of the leaf's streams.
func (l *leaf) user() []byte {
	l.t.Helper()
	var secret corev1.Secret
	text, err := l.kubectl("get", "secret/standalone-nats-account", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &secret)
	}
	if err != nil {
		l.t.Fatalf("%v: %s", err, text)
	}
	signer, noSigner := nkeys.FromSeed(bytes.TrimSpace(secret.Data["account.seed"]))
	user, noUser := nkeys.CreateUser()
	if err := errors.Join(noSigner, noUser); err != nil {
		l.t.Fatal(err)
	}
	id, noID := user.PublicKey()
	seed, noSeed := user.Seed()
	claims := jwt.NewUserClaims(id)
	claims.IssuerAccount = string(bytes.TrimSpace(secret.Data["account.id"]))
	token, noToken := claims.Encode(signer)
	creds, noCreds := jwt.FormatUserConfig(token, seed)
	if err := errors.Join(noID, noSeed, noToken, noCreds); err != nil {
		l.t.Fatal(err)
	}
	return creds
}

// arrived waits until the hub has what the leaf's streams have, once each.
func (l *leaf) arrived(h *hub) {
	l.t.Helper()
	ours, theirs := l.streams(), h.nats.JetStream(l.t)
	same := func() error {
		for _, s := range []struct {
			leaf, hub, subjects string
			least               int // a message has one object, and some datagrams
		}{
			{wire.NoticeStream("north"), wire.NoticeStream("hub"), "notice.north.>", l.sent},
			{wire.ObservationStream("north"), wire.ObservationStream("hub"), "obs.north.>", 1},
		} {
			sent, err := messages(l.t.Context(), ours, s.leaf, s.subjects)
			if err != nil {
				return err
			}
			got, err := messages(l.t.Context(), theirs, s.hub, s.subjects)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(sent, got); diff != "" {
				return fmt.Errorf("%s (-sent +arrived):\n%s", s.leaf, diff)
			}
			if len(sent) < s.least || !maps.Equal(sent, once(sent)) {
				return fmt.Errorf("%s has %d messages, after %d were sent: %v", s.leaf, len(sent), l.sent, sent)
			}
		}
		return nil
	}
	eventually(l.t, "the hub has what the leaf has", same)
}

func once(all map[string]int) map[string]int {
	is := map[string]int{}
	for key := range all {
		is[key] = 1
	}
	return is
}

// TestLeaf: a Site in one process is a leaf of a hub. Wrong credentials and a hub that is away are said, and the Site works meanwhile; what it
// receives while the link is down, across a restart too, is at the hub afterwards, once each.
func TestLeaf(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	way := testenv.StartRelay(t, h.nats.LeafAddress())
	up := fmt.Sprintf(`upstream: {url: "tls://%s", credentialsSecretRef: {name: hub-leaf-north}, tls: {caSecretRef: {name: hub-ca}}}`, way.Address())
	ca, creds := secretYAML("hub-ca", "ca.crt", string(h.nats.CA.PEM)), h.credentials(t, "north")
	elsewhere := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	wrong, err := os.ReadFile(elsewhere.UserCreds(t, jwt.Permissions{}))
	if err != nil {
		t.Fatal(err)
	}

	l := &leaf{t: t, port: testenv.FreePort(t), manifests: t.TempDir()}
	l.write(up, ca)
	l.Standalone = testenv.StartStandalone(t, l.manifests)
	l.upstream("False/SecretNotFound", `"hub-leaf-north"`, "spec.upstream.credentialsSecretRef")
	l.write(up, ca, secretYAML("hub-leaf-north", "user.creds", "none"))
	l.upstream("False/SecretIncomplete", "user.creds")
	l.write(up, ca, secretYAML("hub-leaf-north", "user.creds", string(wrong)))
	l.upstream("False/AccessDenied", "hub-leaf-north", "carry the Secret")
	if out, err := l.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "site/north"); err != nil {
		t.Fatalf("the Site is not Ready without its hub: %v: %s", err, out)
	}
	l.send()

	right := secretYAML("hub-leaf-north", "user.creds", creds)
	l.write(up, secretYAML("hub-ca", "ca.crt", string(testenv.NewCA(t).PEM)), right)
	l.upstream("False/Refused", "x509", "spec.upstream.tls.caSecretRef")
	l.write(up, ca, right)
	l.upstream("True/Reachable")
	l.send()
	l.arrived(h)

	way.Cut()
	l.upstream("False/Unreachable", way.Address(), "comes when the link is back")
	l.send()
	l.Kill()
	l.Start()
	l.send()
	l.upstream("False/Unreachable")
	way.Mend()
	l.upstream("True/Reachable")
	l.send()
	l.arrived(h)

	if err := secretsOnly(l.DataDir); err != nil {
		t.Error(err)
	}
	l.write("")
	l.upstream("")
	if left, err := filepath.Glob(filepath.Join(l.DataDir, "nats", "upstream", "*")); err != nil || len(left) > 0 {
		t.Errorf("credentials that nobody uses are left: %q, %v", left, err)
	}
	if strings.Contains(l.Log(), strings.TrimSpace(seedOf(creds))) {
		t.Error("the log has the credentials")
	}
}

// secretsOnly looks for the credentials of the link: one file, which its user alone reads.
func secretsOnly(dataDir string) error {
	files, err := filepath.Glob(filepath.Join(dataDir, "nats", "upstream", "*"))
	if err != nil || len(files) != 1 {
		return errors.Join(err, fmt.Errorf("there are the credentials %q", files))
	}
	info, err := os.Stat(files[0])
	if err == nil && info.Mode().Perm() != 0o600 {
		err = fmt.Errorf("%s has the mode %v", files[0], info.Mode())
	}
	return err
}

// seedOf is the seed in credentials.
func seedOf(creds string) string {
	for line := range strings.Lines(creds) {
		if strings.HasPrefix(line, "SU") {
			return line
		}
	}
	return "no seed"
}
