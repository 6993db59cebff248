// SPDX-License-Identifier: Apache-2.0

// Package accounts tries what each NATS credential of a Site can do to it beyond its permissions.
package accounts

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
)

const (
	code   = "hub"
	camera = "camera"
	mag    = "mag"
	leaf   = "north"
	pool   = "pool"
	pod    = "pool-0"
	// attacker and other are FeedConsumers.
	attacker = "attacker"
	other    = "other"
	issue    = "0a1b2c3d4e"
)

// servers are NATS: one server, or three.
type servers interface {
	JetStream(t testing.TB) jetstream.JetStream
	Connect(t testing.TB, opts ...nats.Option) *nats.Conn
	UserCreds(t testing.TB, permissions jwt.Permissions, connections ...string) string
	ConsumerCreds(t testing.TB, permissions jwt.Permissions) string
	CommandCreds(t testing.TB, permissions jwt.Permissions) string
	URL() string
}

// lab is a Site with two FeedConsumers.
type lab struct {
	t   *testing.T
	bus servers
	// js may do everything in the account SUBSTORM.
	js jetstream.JetStream
	// settleLeaf is settle for what a leaf has forged.
	settleLeaf func()
}

func newLab(t *testing.T, b servers, replicas int) *lab {
	t.Helper()
	l := &lab{t: t, bus: b, js: b.JetStream(t)}
	testenv.CreateReplicatedSite(t, l.js, code, replicas)
	for _, consumer := range []string{attacker, other} {
		p, _ := planned(consumer, replicas)
		for _, d := range p.Durables {
			_, err := l.js.CreateConsumer(t.Context(), d.Stream, jetstream.ConsumerConfig{Durable: d.Name, FilterSubjects: d.Subjects,
				AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxAckPending: d.Window, Replicas: replicas})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

func site() *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: "hub"},
		Spec: v1alpha1.SiteSpec{Code: code, Leaves: []v1alpha1.Leaf{{Code: leaf}}}}
}

func durable(consumer string) string { return wire.ConsumerDurable(consumer, issue) }

// planned is what the operator's planner makes of a FeedConsumer.
func planned(consumer string, replicas int) (bus.Plan, bus.JetStreamUser) {
	s := site()
	s.Spec.JetStream.Replicas = int32(replicas)
	feed := v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	c := v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: consumer, UID: types.UID("uid-of-" + consumer)}, Spec: v1alpha1.FeedConsumerSpec{
		FeedRef: v1alpha1.LocalReference{Name: feed.Name}, Flow: v1alpha1.Flow{Mode: v1alpha1.FlowAll}, Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}}}
	verdict := accept.ConsumerVerdict{Finding: finding.Finding{Status: metav1.ConditionTrue}, Notices: true, Telemetry: true, Readable: []string{camera, mag}}
	p := bus.MakePlan(s, []v1alpha1.Feed{feed}, nil, []v1alpha1.FeedConsumer{c}, map[string]accept.ConsumerVerdict{consumer: verdict},
		map[string]string{consumer: durable(consumer)})
	return p, bus.ConsumerUser(s, &feed, &c, verdict, durable(consumer))
}

// permissions are a user's, as a token has them.
func permissions(u bus.JetStreamUser) jwt.Permissions {
	var may jwt.Permissions
	may.Pub.Allow.Add(u.Publish...)
	may.Pub.Deny.Add(u.DenyPublish...)
	may.Sub.Allow.Add(u.Subscribe...)
	return may
}

// connect connects with nothing but a credentials file. Refusals are not reported: they are what the tests are about.
func (l *lab) connect(creds string, opts ...nats.Option) *nats.Conn {
	l.t.Helper()
	opts = append([]nats.Option{nats.UserCredentials(creds), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, opts...)
	nc, err := nats.Connect(l.bus.URL(), opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	return nc
}

// publish stores a message as the Site's programs do.
func (l *lab) publish(subject, payload string) uint64 {
	l.t.Helper()
	ack, err := l.js.Publish(l.t.Context(), subject, []byte(payload))
	if err != nil {
		l.t.Fatalf("publish %s: %v", subject, err)
	}
	return ack.Sequence
}

func (l *lab) stream(name string) *jetstream.StreamInfo {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return s.CachedInfo()
}

func (l *lab) await(what string, holds func() bool) {
	l.t.Helper()
	testenv.Await(l.t, what, holds)
}
