// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
)

const feedManifest = `
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: telemetry}
spec:
  siteRef: {name: demo}
  messageTypes: [Telemetry]
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: everything}
spec:
  feedRef: {name: telemetry}
  filter: {instrumentNames: [feed-magnetometer]}
  delivery: {type: WebSocket}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: newest}
spec:
  feedRef: {name: telemetry}
  filter: {instrumentNames: [feed-magnetometer]}
  flow: {mode: Sample, interval: 200ms}
  delivery: {type: WebSocket}
`

// TestFeed follows a Feed while the feed server that it follows is killed, and then the server of NATS that leads the stream: the
// consumer continues at another replica, and misses and duplicates nothing.
func TestFeed(t *testing.T) {
	l := theLab
	l.apply(t, instrumentUDP("feed-magnetometer", 30131))
	l.apply(t, feedManifest)
	l.waitReady(t, "instrument/feed-magnetometer", "feed/telemetry", "feedconsumer/everything", "feedconsumer/newest", "site/demo")
	eventually(t, l.twoFeedServers)

	to := join(l.nodeAddresses(t)[:1], 30131)
	l.forwards(t, to, "feed-magnetometer")
	all, sampled := l.follow(t, "telemetry", "everything"), l.follow(t, "telemetry", "newest")
	leader := l.leaderOf(t, wire.ObservationStream("demo"))
	already := l.ledger(t, "feed-magnetometer").Received.Datagrams
	end := l.sendingLines(t, to)
	eventually(t, func() error { return all.has(1000) })
	l.kubectl(t, "delete", "pod", all.server(), "--grace-period=0", "--force")
	then := all.count() + 1000
	eventually(t, func() error { return all.has(then) })
	l.kubectl(t, "delete", "pod", leader, "--grace-period=0", "--force")
	then = all.count() + 1000
	eventually(t, func() error { return all.has(then) })
	datagrams := end()

	eventually(t, func() error { return all.has(datagrams) })
	eventually(t, func() error { return l.received(t, "feed-magnetometer", already+uint64(datagrams)) })
	eventually(t, func() error { return l.podReady(leader) })
	if all.connections() < 2 {
		t.Error("the consumer never lost its feed server: nothing was tried")
	}
	if n := sampled.count(); n == 0 || n > datagrams/10 {
		t.Errorf("the consumer that asked for five samples a second got %d of %d", n, datagrams)
	}
	// Figures are reported within half a minute, and a status is brought up to date each minute.
	eventually(t, func() error { return l.delivered(t, "everything") })
	all.stop()
	sampled.stop()
	eventually(t, func() error { return l.keepingUp(t, "everything", "Idle") })
}

// podReady is nil once a pod is there and ready.
func (l *lab) podReady(name string) error {
	_, err := l.tryKubectl("wait", "--for=condition=Ready", "--timeout=10s", "pod/"+name)
	return err
}

// leaderOf returns the NATS pod that leads a stream of three replicas, once one does.
func (l *lab) leaderOf(t testing.TB, stream string) (leader string) {
	t.Helper()
	eventually(t, func() (err error) {
		leader, err = l.findLeader(t, stream)
		return err
	})
	return leader
}

func (l *lab) findLeader(t testing.TB, stream string) (string, error) {
	t.Helper()
	var server struct {
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster struct {
					Leader   string     `json:"leader"`
					Replicas []struct{} `json:"replicas"`
				} `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	text := l.kubectl(t, "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/substorm-nats-0:8222/proxy/jsz?accounts=true&streams=true")
	if err := json.Unmarshal([]byte(text), &server); err != nil {
		return "", err
	}
	for _, a := range server.Accounts {
		for _, s := range a.Streams {
			if s.Name == stream && s.Cluster.Leader != "" && len(s.Cluster.Replicas) == 2 {
				return s.Cluster.Leader, nil
			}
		}
	}
	return "", fmt.Errorf("no NATS pod of three leads stream %s: %.2000s", stream, text)
}

// received is nil once the ledger says that so many datagrams came.
func (l *lab) received(t testing.TB, instrument string, datagrams uint64) error {
	if s := l.ledger(t, instrument); s.Received.Datagrams != datagrams {
		return fmt.Errorf("the gateways received %d of %d datagrams", s.Received.Datagrams, datagrams)
	}
	return nil
}

// twoFeedServers is nil once there are two that are ready.
func (l *lab) twoFeedServers() error {
	ready, err := l.feedServers()
	if err == nil && len(ready) != 2 {
		err = fmt.Errorf("%d feed servers are ready", len(ready))
	}
	return err
}

// feedServers are the pods that are ready, with their addresses.
func (l *lab) feedServers() (map[string]string, error) {
	text, err := l.tryKubectl("get", "pods", "-l", "app.kubernetes.io/name=feed-server", "-o", "json")
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(text), &pods); err != nil {
		return nil, err
	}
	ready := map[string]string{}
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				ready[p.Name] = p.Status.PodIP
			}
		}
	}
	return ready, nil
}

// consumerView is what the test reads of a FeedConsumer.
type consumerView struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Delivered  struct {
			MessageCount int64 `json:"messageCount"`
		} `json:"delivered"`
	} `json:"status"`
}

// delivered is nil once the status says that messages were handed over.
func (l *lab) delivered(t testing.TB, consumer string) error {
	var v consumerView
	l.getJSON(t, &v, "feedconsumer", consumer)
	if v.Status.Delivered.MessageCount == 0 {
		return fmt.Errorf("the status of FeedConsumer %s says that nothing was delivered", consumer)
	}
	return nil
}

// keepingUp is nil once the reason of that condition is as wanted.
func (l *lab) keepingUp(t testing.TB, consumer, want string) error {
	var v consumerView
	l.getJSON(t, &v, "feedconsumer", consumer)
	c := meta.FindStatusCondition(v.Status.Conditions, "KeepingUp")
	if c == nil || c.Reason != want {
		return fmt.Errorf("FeedConsumer %s has %v, want KeepingUp with reason %s", consumer, v.Status.Conditions, want)
	}
	return nil
}

// follower is a consumer that continues elsewhere when its feed server is gone.
type follower struct {
	stop func()

	mu       sync.Mutex
	token    string
	pod      string
	opened   int
	payloads map[string]int
	notices  map[noticeKey]int
	problem  error
	gaps     []string
}

// follow begins to consume with what the FeedConsumer's Secret holds.
func (l *lab) follow(t testing.TB, feed, consumer string) *follower {
	t.Helper()
	var secret corev1.Secret
	l.getJSON(t, &secret, "secret", consumer+"-consumer")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f := &follower{payloads: map[string]int{}, notices: map[noticeKey]int{}, stop: func() { cancel(); <-done }}
	first := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			pods, err := l.feedServers()
			f.failed(err)
			for pod, ip := range pods {
				f.consume(ctx, pod, ip, feed, consumer, string(secret.Data["token"]), first)
			}
		}
	}()
	t.Cleanup(f.stop)
	select {
	case <-first:
	case <-time.After(patience):
		f.mu.Lock()
		defer f.mu.Unlock()
		t.Fatalf("FeedConsumer %s cannot connect: %v", consumer, f.problem)
	}
	return f
}

func (f *follower) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.problem = err
	}
}

// consume reads from one feed server until that ends it.
func (f *follower) consume(ctx context.Context, pod, ip, feed, consumer, token string, first chan struct{}) {
	f.mu.Lock()
	ask := url.Values{"consumer": {consumer}, "resume": {f.token}}
	f.mu.Unlock()
	dialing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(dialing, "ws://"+net.JoinHostPort(ip, "8080")+"/feeds/"+feed+"/ws?"+ask.Encode(), &websocket.DialOptions{
		Subprotocols: []string{wire.SubprotocolJSON}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		f.failed(err)
		time.Sleep(100 * time.Millisecond) // a consumer that finds no server comes again a little later
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	f.mu.Lock()
	f.pod = pod
	if f.opened++; f.opened == 1 {
		close(first)
	}
	f.mu.Unlock()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		f.take(data)
	}
}

// noticeKey tells one notice from another. An object that a sender sends again, because it got no receipt, has a notice for each
// time that it arrived, and those that say that they are duplicates.
type noticeKey struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Digest string `json:"sha256"`
}

func (f *follower) take(data []byte) {
	var m struct {
		Token     string          `json:"token"`
		Gap       json.RawMessage `json:"gap"`
		Notice    noticeKey       `json:"notice"`
		Telemetry struct {
			Datagrams []struct {
				Payload string `json:"payload"`
			} `json:"datagrams"`
		} `json:"telemetry"`
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := json.Unmarshal(data, &m); err != nil {
		f.problem = err
		return
	}
	if m.Gap != nil {
		f.gaps = append(f.gaps, string(m.Gap))
	}
	f.token = m.Token
	if m.Notice.Digest != "" {
		f.notices[m.Notice]++
	}
	for _, d := range m.Telemetry.Datagrams {
		payload, err := base64.StdEncoding.DecodeString(d.Payload)
		if err != nil {
			f.problem = err
		}
		if string(payload) == probeLine {
			continue
		}
		f.payloads[string(payload)]++
	}
}

// has is nil once so many datagrams came, each once.
func (f *follower) has(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for payload, times := range f.payloads {
		if times > 1 {
			return fmt.Errorf("datagram %q came %d times", payload, times)
		}
	}
	if len(f.gaps) > 0 {
		return fmt.Errorf("gap records where nothing is missing: %s", f.gaps)
	}
	if len(f.payloads) < n {
		return fmt.Errorf("%d of %d datagrams came, over %d connections (%v)", len(f.payloads), n, f.opened, f.problem)
	}
	return nil
}

// hasNotices is nil once a notice of each object came, once.
func (f *follower) hasNotices(digests map[string]bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.gaps) > 0 {
		return fmt.Errorf("gap records where nothing is missing: %s", f.gaps)
	}
	came := map[string]bool{}
	for n, times := range f.notices {
		if times > 1 || !digests[n.Digest] {
			return fmt.Errorf("the notice %+v came %d times; of one of the objects sent: %v", n, times, digests[n.Digest])
		}
		came[n.Digest] = true
	}
	if len(came) < len(digests) {
		return fmt.Errorf("notices of %d of %d objects came, over %d connections (%v)", len(came), len(digests), f.opened, f.problem)
	}
	return nil
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.payloads)
}

func (f *follower) server() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pod
}

func (f *follower) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}
