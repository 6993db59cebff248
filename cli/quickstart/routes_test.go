// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/testenv"
)

// clusterConfig is the prefix that the chart's golden file of three servers has.
var clusterConfig = Config{Namespace: "aurora", Prefix: "polar", ClusterDomain: "cluster.local", Instance: "test"}

// chartConfig is the nats.conf that the chart writes for three servers.
func chartConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../charts/testdata/quickstart-three-servers.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var m corev1.ConfigMap
		if yaml.Unmarshal([]byte(doc), &m) == nil && m.Kind == "ConfigMap" && m.Data["nats.conf"] != "" {
			return m.Data["nats.conf"]
		}
	}
	t.Fatal("the chart writes no nats.conf")
	return ""
}

// routed is a server that has routes to others, or tries to have them.
type routed struct {
	name, dir, monitor, url string
}

// startRouted runs a server with a nats.conf, whose placeholder {dir} is a folder with files.
func startRouted(t *testing.T, name, config string, files map[string][]byte) *routed {
	t.Helper()
	s := &routed{name: name, dir: t.TempDir()}
	monitor := testenv.FreePort(t)
	s.monitor = fmt.Sprintf("http://127.0.0.1:%d", monitor)
	client := testenv.FreePort(t)
	s.url = fmt.Sprintf("tls://127.0.0.1:%d", client)
	config = strings.NewReplacer("{dir}", s.dir, "{client}", fmt.Sprint(client), "{monitor}", fmt.Sprint(monitor)).Replace(config)
	for file, data := range files {
		write(t, filepath.Join(s.dir, file), data)
	}
	write(t, filepath.Join(s.dir, "nats.conf"), []byte(config))
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Path(t, "nats-server"), "-c", filepath.Join(s.dir, "nats.conf"))
	cmd.Env = append(os.Environ(), "POD_NAME="+name)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, s.log(t))
		}
	})
	return s
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *routed) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// peers are the servers that s has routes with, without s. Nil while it does not answer.
func (s *routed) peers() []string {
	response, err := http.Get(s.monitor + "/routez")
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var answer struct {
		Routes []struct {
			Name string `json:"remote_name"`
		} `json:"routes"`
	}
	if json.NewDecoder(response.Body).Decode(&answer) != nil {
		return nil
	}
	names := []string{}
	for _, r := range answer.Routes {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// startCluster runs the chart's three servers with the keys in v, and returns them and the addresses of their routes.
// They find each other on loopback; the names that the chart gives them stay in the configuration.
func startCluster(t *testing.T, v *Memory) (servers []*routed, routes []string) {
	t.Helper()
	config := chartConfig(t)
	for range 3 {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)))
	}
	pair := v.data(t, "polar-tls-nats")
	for i := range 3 {
		replace := []string{
			"0.0.0.0:4222", "127.0.0.1:{client}", "0.0.0.0:8222", "127.0.0.1:{monitor}", "0.0.0.0:6222", routes[i],
			"/etc/nats-tls", "{dir}", "/data", "{dir}/jetstream", "max_file_store: 9Gi", "max_file_store: 1Gi",
		}
		for other, address := range routes {
			if other != i { // its own name stays as it is
				replace = append(replace, fmt.Sprintf("polar-nats-%d.polar-nats-pods.aurora.svc:6222", other), address)
			}
		}
		servers = append(servers, startRouted(t, fmt.Sprintf("polar-nats-%d", i), strings.NewReplacer(replace...).Replace(config), map[string][]byte{
			"auth.conf": v.data(t, "polar-nats-auth")[keyAuthConf],
			"ca.crt":    pair[keyCA], "tls.crt": pair[corev1.TLSCertKey], "tls.key": pair[corev1.TLSPrivateKeyKey],
		}))
	}
	for _, s := range servers {
		testenv.Await(t, s.name+" has routes with the two others", func() bool { return len(s.peers()) == 2 })
	}
	return servers, routes
}

// TestRoutesTakeTheServersAlone: of all certificates of the quickstart's authority, only the certificate of the NATS servers makes a
// server a member of their cluster.
func TestRoutesTakeTheServersAlone(t *testing.T) {
	var v Memory
	if err := keysWith(t, &v, clusterConfig); err != nil {
		t.Fatal(err)
	}
	servers, routes := startCluster(t, &v)
	storeInCluster(t, &v, servers)

	// As quickstarts before this one made it: for servers and clients.
	ca := v.data(t, "polar-tls-ca")
	template := certificate("polar-tls-s3")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames = serverNames(clusterConfig, []string{"polar-s3"})
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	older, err := sign(template, ca)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]map[string][]byte{
		"client":   v.data(t, "polar-tls-client"),
		"s3":       v.data(t, "polar-tls-s3"),
		"older-s3": older,
	} {
		t.Run(name, func(t *testing.T) {
			foreign := startRouted(t, "foreign-"+name, foreignConfig(routes), map[string][]byte{
				"ca.crt": pair[keyCA], "tls.crt": pair[corev1.TLSCertKey], "tls.key": pair[corev1.TLSPrivateKeyKey],
			})
			tries := func() int {
				return strings.Count(foreign.log(t), "Router connection closed") + strings.Count(foreign.log(t), "TLS route handshake error")
			}
			joined := func() bool {
				return len(foreign.peers()) > 0 || slices.ContainsFunc(servers, func(s *routed) bool { return slices.Contains(s.peers(), foreign.name) })
			}
			// One that is about to be refused may be listed for a moment.
			stays := func() bool {
				for range 40 {
					if !joined() {
						return false
					}
					time.Sleep(50 * time.Millisecond)
				}
				return true
			}
			testenv.Await(t, "three routes are refused or one is not", func() bool { return tries() >= 3 || stays() })
			if stays() {
				t.Errorf("a server with the certificate %s joined the cluster", name)
			}
		})
	}
}

// foreignConfig is the configuration of a server that claims to be a member of the cluster.
func foreignConfig(routes []string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `
server_name: $POD_NAME
listen: "127.0.0.1:{client}"
http: "127.0.0.1:{monitor}"
cluster {
  name: polar
  listen: "127.0.0.1:-1"
  routes: [ "tls://%s" ]
  tls { cert_file: "{dir}/tls.crt", key_file: "{dir}/tls.key", ca_file: "{dir}/ca.crt", insecure: true }
}
`, strings.Join(routes, `", "tls://`))
	return b.String()
}

// storeInCluster shows that the three servers keep a stream together.
func storeInCluster(t *testing.T, v *Memory, servers []*routed) {
	t.Helper()
	account := v.data(t, "polar-nats-account")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(v.data(t, "polar-tls-client")[keyCA])
	tlsConfig := nats.Secure(clientOf(roots))
	nc, err := nats.Connect(servers[0].url, tlsConfig, userOf(t, string(account[keyAccountID]), string(account[keyAccountSeed])),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, "demo")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "a stream of three replicas is made", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "OBS_test", Subjects: []string{"obs.test.>"}, Replicas: 3})
		return err == nil
	})
}

// TestCertificatesHaveTheLeastUsages: what a client shows is good for no server, and the other way round.
func TestCertificatesHaveTheLeastUsages(t *testing.T) {
	v := complete(t)
	for name, want := range map[string][]x509.ExtKeyUsage{
		"substorm-tls-client": {x509.ExtKeyUsageClientAuth},
		"substorm-tls-s3":     {x509.ExtKeyUsageServerAuth},
		"substorm-tls-nats":   {x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, // servers connect to each other
	} {
		pair, err := parse(v.data(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(pair.Leaf.ExtKeyUsage, want) || pair.Leaf.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("%s: usages %v and %v, want %v", name, pair.Leaf.KeyUsage, pair.Leaf.ExtKeyUsage, want)
		}
	}
}
