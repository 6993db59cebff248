// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// startFeedServer runs the real program as the Deployment of a FeedServer says: its flags,
// with its Secrets as files.
func (w *world) startFeedServer(server string) *testenv.FeedServer {
	w.t.Helper()
	name := workload.FeedServerName(server)
	w.awaitSecret(workload.JetStreamSecret(name), workload.KeyUserCreds)
	d := &appsv1.Deployment{}
	eventually(w.t, "the Deployment of "+server, func() error {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, d)
	})
	root := w.t.TempDir()
	pod := &d.Spec.Template.Spec
	for _, v := range pod.Volumes {
		mount := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		dir := filepath.Join(root, pod.Containers[0].VolumeMounts[mount].MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
		for key, value := range w.awaitSecret(v.Secret.SecretName, anyKey(v.Secret.SecretName)).Data {
			if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	var flags []string
	for _, arg := range pod.Containers[0].Args {
		if !strings.HasPrefix(arg, "--listen") && !strings.HasPrefix(arg, "--pod=") {
			flags = append(flags, strings.ReplaceAll(arg, "=/etc/", "="+root+"/etc/"))
		}
	}
	return testenv.StartFeedServer(w.t, testenv.FeedServerOptions{Site: "hub", NATS: w.nats, Pod: name + "-0", Flags: flags})
}

// anyKey returns a key that the Secrets mounted by feed servers have.
func anyKey(secret string) string {
	switch {
	case strings.HasSuffix(secret, "-jetstream"):
		return workload.KeyUserCreds
	case secret == "s3":
		return workload.KeyAccessKeyID
	default:
		return workload.KeyCA
	}
}

func (w *world) telemetry(g *gateway, instrument string, payload string) {
	w.t.Helper()
	b := wire.AppendTelemetryHeader(nil, instrument, "raw")
	b = wire.AppendDatagram(b, wire.Datagram{ReceivedAt: time.Now(), Source: netip.MustParseAddrPort("192.0.2.7:4000"), Payload: []byte(payload)})
	m := nats.NewMsg(wire.ObservationSubject("hub", instrument, "raw"))
	m.Data = b
	m.Header.Set(wire.HeaderDatagrams, "1")
	if _, err := g.js.PublishMsg(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

// TestFeedServerProgram: the real feed server, with the flags of its Deployment and the
// rights of its user, serves consumers who have their Secrets.
func TestFeedServerProgram(t *testing.T) {
	w := newFeedWorld(t)
	address := "http://hub-feed-server." + w.namespace + ".svc"
	w.applyServer("public", `, url: "`+address+`"`) // the pods of hub name objects there
	eventually(t, "the address", func() error {
		d := &appsv1.Deployment{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hub-feed-server"}, d); err != nil {
			return err
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--notification-url="+address) {
			return fmt.Errorf("%q", args)
		}
		return nil
	})
	w.rollOut()
	w.applyFeed("all", "")
	w.applyFeed("own", ", stream: {maxSize: 8Mi}")
	w.applyConsumer("machines", "all", "NATS, notices: WIS2", ", filter: {messageTypes: [Notices]}")
	w.applyConsumer("socket", "all", "WebSocket", "")
	w.applyConsumer("events", "own", "ServerSentEvents", "")
	w.applyConsumer("client", "own", "NATS", "")
	w.applyConsumer("latest", "all", "NATS", ", flow: {mode: Latest}")
	f, other := w.startFeedServer("hub"), w.startFeedServer("public")
	for _, name := range []string{"socket", "events", "client", "latest", "machines"} {
		w.awaits("FeedConsumer", name, "Ready", "True/Ready")
	}
	secret := func(consumer string) (url string, bearer http.Header) {
		data := w.awaitSecret(consumer+"-consumer", bus.KeyToken).Data
		return strings.Replace(string(data[bus.KeyURL]), "hub-feed-server."+w.namespace+".svc", f.Address(), 1),
			http.Header{"Authorization": {"Bearer " + string(data[bus.KeyToken])}}
	}
	url, bearer := secret("socket")
	if _, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer nonsense-and-long"}}}); err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with another token at %s: %v", url, err)
	}
	socket, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: bearer, Subprotocols: []string{wire.SubprotocolJSON}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	url, bearer = secret("events")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = bearer
	events, err := http.DefaultClient.Do(req)
	if err != nil || events.StatusCode != http.StatusOK {
		t.Fatalf("events: %v, %v", events, err)
	}
	defer events.Body.Close()

	g := w.gateway("pool", "pool-0")
	w.telemetry(g, "mag-1", "sample")
	_, text, err := socket.Read(t.Context())
	for err == nil && !strings.Contains(string(text), "telemetry") { // its place alone
		_, text, err = socket.Read(t.Context())
	}
	var frame struct {
		Datagrams []struct {
			Payload []byte `json:"payload"`
		} `json:"datagrams"`
	}
	if err == nil {
		err = json.Unmarshal(text, &frame)
	}
	if err != nil || !strings.Contains(string(text), "mag-1") {
		t.Errorf("over WebSocket: %s, %v", text, err)
	}
	go func() { // who does not read answers no ping, and is disconnected
		for err := error(nil); err == nil; {
			_, _, err = socket.Read(t.Context())
		}
	}()
	line := ""
	for lines := bufio.NewScanner(events.Body); !strings.Contains(line, "mag-1") && lines.Scan(); {
		line = lines.Text()
	}
	if !strings.HasPrefix(line, "data:") {
		t.Errorf("over SSE: %q", line)
	}
	if got := w.natsClient("client").takes("FEED_hub_own", 1); !strings.Contains(got[0], "sample") {
		t.Errorf("over NATS: %q", got)
	}
	if got := w.natsClient("latest").takes("CONS_hub_latest", 1); !strings.Contains(got[0], "sample") {
		t.Errorf("the latest over NATS: %q", got)
	}
	w.awaits("FeedConsumer", "socket", "KeepingUp", "True/Flowing")
	w.awaits("FeedConsumer", "client", "KeepingUp", "True/Flowing")
	eventually(t, "what was delivered", func() error {
		var s v1alpha1.FeedConsumerStatus
		if w.status("FeedConsumer", "socket", &s); s.Delivered == nil || ptr.Deref(s.Delivered.MessageCount, 0) != 1 || ptr.Deref(s.ConnectionCount, 0) != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	eventually(t, "the figures of the FeedServer", func() error {
		var s v1alpha1.FeedServerStatus
		if w.status("FeedServer", "hub", &s); s.ConnectionCount == nil || s.BytesPerSecond == nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	digest := wire.Digest{1}
	key := wire.RawKey("hub", "camera", time.Now(), digest)
	notice, err := stream.NoticeMessage(wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
		ID: key, Key: key, Digest: digest, State: wire.StateCurrent, ReceivedAt: time.Now(), TimeSource: wire.TimeSourceReceived}}, "pool-0")
	if err == nil {
		_, err = g.js.PublishMsg(t.Context(), notice)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := w.natsClient("machines").takes("CONS_hub_machines", 1); !strings.Contains(got[0], `"href":"`+address+"/archive/camera/r/") {
		t.Errorf("WIS2 over NATS: %q", got)
	}

	// Pods of all FeedServers share out the consumers of NATS, and none is served by two.
	leases := map[string]bool{}
	for _, consumer := range []string{"client", "latest", "machines"} {
		leases[wire.DeliveryLease(consumer)] = true
	}
	eventually(t, "each lease has one holder", func() error {
		if held := leasesHeld(t, f) + leasesHeld(t, other); held != len(leases) {
			return fmt.Errorf("%d are held, of %d", held, len(leases))
		}
		return nil
	})
	filled, err := w.nats.JetStream(t).Stream(t.Context(), "CONS_hub_machines")
	if err != nil {
		t.Fatal(err)
	}
	if n := filled.CachedInfo().State.LastSeq; n != 1 {
		t.Errorf("machines was told of one object %d times", n)
	}
}

// leasesHeld is how many leases of consumers of delivery NATS a feed server holds.
func leasesHeld(t *testing.T, f *testenv.FeedServer) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.Metrics(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if n, is := strings.CutPrefix(lines.Text(), "substorm_feed_nats_leases_held "); is {
			held, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
	}
	t.Fatal("no metric says how many leases are held")
	return 0
}
