// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// block returns the only block of a page in a language.
func block(t *testing.T, page, language string) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?sm)^```"+language+"\n(.*?)^```").FindAllSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of %s", page, len(found), language)
	}
	return found[0][1]
}

// natsPy returns a python that has nats-py, in a folder of the test's.
func natsPy(t *testing.T) string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	python := filepath.Join(venv, "bin", "python")
	for _, args := range [][]string{{"python3", "-m", "venv", venv}, {python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "nats-py[nkeys]"}} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s: %v, and CI must run this test\n%s", strings.Join(args, " "), err, out)
		}
		t.Skipf("no nats-py: %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return python
}

// natsSite is JetStream with one FeedConsumer, and the Secret of that in a folder.
type natsSite struct {
	js  jetstream.JetStream
	dir string
	bus bus.Plan
}

func newNATSSite(t *testing.T) natsSite {
	t.Helper()
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, AnyClient: true})
	s := natsSite{js: server.JetStream(t), dir: t.TempDir()}
	testenv.CreateSite(t, s.js, siteCode)
	site := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Code: siteCode, JetStream: v1alpha1.JetStream{Servers: []string{server.URL()}, Replicas: 1}}}
	feed := v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: "everything"}}
	model := v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: "model", UID: "uid-of-model"}, Spec: v1alpha1.FeedConsumerSpec{
		FeedRef: v1alpha1.LocalReference{Name: feed.Name}, Flow: v1alpha1.Flow{Mode: v1alpha1.FlowAll}, Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}}}
	verdict := accept.ConsumerVerdict{Finding: finding.Finding{Status: metav1.ConditionTrue}, Notices: true, Telemetry: true, Readable: []string{camera, magnetometer}}
	durable := wire.ConsumerDurable(model.Name, "0a1b2c3d4e")
	s.bus = bus.MakePlan(site, []v1alpha1.Feed{feed}, nil, []v1alpha1.FeedConsumer{model}, map[string]accept.ConsumerVerdict{model.Name: verdict},
		map[string]string{model.Name: durable})
	for _, d := range s.bus.Durables {
		_, err := s.js.CreateConsumer(t.Context(), d.Stream, jetstream.ConsumerConfig{Durable: d.Name, FilterSubjects: d.Subjects,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: d.Window})
		if err != nil {
			t.Fatal(err)
		}
	}
	user := bus.ConsumerUser(site, &feed, &model, verdict, durable)
	var allowed jwt.Permissions
	allowed.Pub.Allow.Add(user.Publish...)
	allowed.Sub.Allow.Add(user.Subscribe...)
	secret := filepath.Join(s.dir, "secret")
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	creds, err := os.ReadFile(server.ConsumerCreds(t, allowed))
	if err != nil {
		t.Fatal(err)
	}
	data := bus.ConsumerAccess{Site: site, Feed: &feed, Consumer: &model, Verdict: verdict, Durable: durable, CA: server.CA.PEM}.Data()
	data[workload.KeyUserCreds] = creds
	for key, value := range data {
		if err := os.WriteFile(filepath.Join(secret, key), value, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// publish publishes so many notices, telemetry messages and one gap record.
func (s natsSite) publish(t *testing.T, from, count int) (ids []string) {
	t.Helper()
	send := func(m *nats.Msg, id, kind string) {
		m.Header.Set(wire.HeaderID, id)
		m.Header.Set(wire.HeaderType, kind)
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for i := from; i < from+count; i++ {
		key := wire.RawKey(siteCode, camera, time.Now(), wire.Digest{byte(i), byte(i >> 8)})
		notice, err := stream.NoticeMessage(wire.Notice{Site: siteCode, Instrument: camera, Record: wire.Record{ID: key, Key: key,
			State: wire.StateCurrent, ReceivedAt: time.Now().UTC()}}, "gateway-0")
		if err != nil {
			t.Fatal(err)
		}
		send(notice, key, wire.TypeNotice)
		m := nats.NewMsg(wire.ObservationSubject(siteCode, magnetometer, "raw"))
		m.Data = wire.AppendTelemetryHeader(nil, magnetometer, "raw")
		send(m, fmt.Sprint("gateway-0/incarnation/", i), wire.TypeTelemetry)
	}
	gap := nats.NewMsg(wire.GapSubject(siteCode, "model"))
	send(gap, wire.GapID("uid-of-model", uint64(from)), wire.TypeGap)
	return ids
}

// TestNATS: the programs of nats.md read everything with the Secret alone. They are
// killed in the middle, and what they did not acknowledge comes again.
func TestNATS(t *testing.T) {
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		python := natsPy(t)
		s := newNATSSite(t)
		program := filepath.Join(s.dir, "read.py")
		if err := os.WriteFile(program, block(t, "how-to/nats.md", "python"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.consume(t, python, program)
	})
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		s := newNATSSite(t)
		source, program := filepath.Join(s.dir, "main.go"), filepath.Join(s.dir, "read")
		if err := os.WriteFile(source, block(t, "how-to/nats.md", "go"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
			t.Fatalf("the program in how-to/nats.md: %v\n%s", err, out)
		}
		s.consume(t, program)
	})
}

func (s natsSite) consume(t *testing.T, command ...string) {
	t.Helper()
	want := s.publish(t, 1, 300)
	said := &lines{seen: map[string]int{}}
	stop := s.start(t, said, command...)
	testenv.Await(t, "some are read", func() bool { return said.count() > 100 })
	stop() // by force: what it had and did not acknowledge comes again
	want = append(want, s.publish(t, 1001, 200)...)
	stop = s.start(t, said, command...)
	defer stop()
	testenv.Await(t, "all are read", func() bool { return said.count() == len(want) })
	for _, id := range want {
		if said.times(id) == 0 {
			t.Errorf("%s was not read", id)
		}
	}
	testenv.Await(t, "all are acknowledged", func() bool {
		for _, d := range s.bus.Durables {
			c, err := s.js.Consumer(t.Context(), d.Stream, d.Name)
			if err != nil || c.CachedInfo().NumPending > 0 || c.CachedInfo().NumAckPending > 0 {
				return false
			}
		}
		return true
	})
}

// lines are what a program printed: type, id and size of each message.
type lines struct {
	mu   sync.Mutex
	seen map[string]int
}

func (l *lines) count() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.seen) }

func (l *lines) times(id string) int { l.mu.Lock(); defer l.mu.Unlock(); return l.seen[id] }

// start runs a program in the folder of the Secret until stop kills it.
func (s natsSite) start(t *testing.T, said *lines, command ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = s.dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			if words := strings.Fields(scan.Text()); len(words) == 3 {
				said.mu.Lock()
				said.seen[words[1]]++
				said.mu.Unlock()
			}
		}
		_ = cmd.Wait()
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			<-done
			if complaints.Len() > 0 {
				t.Logf("%s said:\n%s", command[0], complaints.String())
			}
		})
	}
	t.Cleanup(stop)
	return stop
}
