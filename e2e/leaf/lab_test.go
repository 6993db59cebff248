// SPDX-License-Identifier: Apache-2.0

package leaf

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

const (
	hubCode  = "hub"
	leafCode = "svalbard"
	camera   = "allsky"
	mag      = "mag"
	// patience is how long a test waits for what must come. It says nothing about
	// how long it takes: after a long outage NATS asks again within three minutes.
	patience = 5 * time.Minute
)

// documented returns the subjects of a list in docs/how-to/leaf.md's configuration of a
// leaf, with our leaf's code in the place of the example's.
func documented(t *testing.T, list string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/leaf.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), list+": [")
	body, _, closed := strings.Cut(after, "]")
	if !found || !closed {
		t.Fatalf("docs/how-to/leaf.md has no %s", list)
	}
	var subjects []string
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(body, -1) {
		subjects = append(subjects, strings.ReplaceAll(m[1], "north", leafCode))
	}
	return subjects
}

// lab is a hub and a leaf: two NATS servers with TLS between them, and the way
// from one to the other.
type lab struct {
	t         *testing.T
	hub, leaf *testenv.NATSServer
	link      *testenv.Relay
}

// newLab links a leaf to a hub that sources from it. Denied says that the leaf
// denies what docs/how-to/leaf.md says; user may change what the hub allows it.
func newLab(t *testing.T, denied bool, user func(*bus.JetStreamUser)) *lab {
	t.Helper()
	l := &lab{t: t, hub: testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Domain: hubCode, TakesLeaves: true})}
	l.link = testenv.StartRelay(t, l.hub.LeafAddress())
	u := bus.LeafUser(hubSite(), v1alpha1.Leaf{Code: leafCode})
	if user != nil {
		user(&u)
	}
	link := &testenv.LeafLink{Address: l.link.Address(), CA: l.hub.CA, Creds: creds(t, l.hub, u)}
	if denied {
		link.DenyImports, link.DenyExports = documented(t, "deny_imports"), documented(t, "deny_exports")
	}
	l.leaf = testenv.NATS(t, testenv.NATSOptions{Operator: true, Domain: leafCode, LeafOf: link})
	testenv.CreateSite(t, l.hub.JetStream(t), hubCode)
	testenv.CreateSite(t, l.leaf.JetStream(t), leafCode)
	return l
}

func hubSite() *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: "field"},
		Spec: v1alpha1.SiteSpec{Code: hubCode, Leaves: []v1alpha1.Leaf{{Code: leafCode}}}}
}

func creds(t *testing.T, server *testenv.NATSServer, u bus.JetStreamUser) string {
	t.Helper()
	var may jwt.Permissions
	may.Pub.Allow.Add(u.Publish...)
	may.Sub.Allow.Add(u.Subscribe...)
	if !u.LeafOnly {
		return server.LeafCreds(t, may)
	}
	return server.LeafCreds(t, may, jwt.ConnectionTypeLeafnode)
}

// outage is how long one lasts.
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SUBSTORM_TEST_OUTAGE")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// message is a message that a stream holds.
type message struct {
	subject, id string
	data        []byte
}

// held returns the messages of a stream on subjects, in the stream's order.
func held(t *testing.T, js jetstream.JetStream, stream, subjects string) []message {
	t.Helper()
	var all []message
	await(t, "stream "+stream+" is read", func() (err error) {
		all, err = read(t, js, stream, subjects)
		return err
	})
	return all
}

func read(t *testing.T, js jetstream.JetStream, stream, subjects string) ([]message, error) {
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		return nil, err
	}
	consumer, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{FilterSubject: subjects, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, InactiveThreshold: time.Minute})
	if err != nil {
		return nil, err
	}
	var all []message
	for pending := consumer.CachedInfo().NumPending; uint64(len(all)) < pending; {
		batch, err := consumer.Fetch(int(min(500, pending-uint64(len(all)))), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, err
		}
		before := len(all)
		for m := range batch.Messages() {
			all = append(all, message{m.Subject(), m.Headers().Get(wire.HeaderMessageID), m.Data()})
		}
		if len(all) == before {
			return nil, fmt.Errorf("%d of %d messages came: %w", before, pending, errors.Join(errSilent, batch.Error()))
		}
	}
	return all, nil
}

var errSilent = errors.New("nothing more comes")

func ids(messages []message) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.subject + " " + m.id
	}
	return all
}

// await calls check until it returns nil.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for range testenv.AttemptsFor(patience) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %s: %v", patience, what, err)
}

// sameAsLeaf waits until the hub's streams hold all that the leaf's do, and fails
// where they hold anything twice or in another order.
func (l *lab) sameAsLeaf() {
	l.t.Helper()
	hub, leaf := l.hub.JetStream(l.t), l.leaf.JetStream(l.t)
	for _, s := range []struct{ hub, leaf, subjects string }{
		{wire.ObservationStream(hubCode), wire.ObservationStream(leafCode), wire.ObservationSubjects(leafCode)},
		{wire.NoticeStream(hubCode), wire.NoticeStream(leafCode), wire.NoticeSubjects(leafCode)},
	} {
		await(l.t, "the hub has what the leaf has", func() error {
			want, got := ids(held(l.t, leaf, s.leaf, s.subjects)), ids(held(l.t, hub, s.hub, s.subjects))
			if len(got) < len(want) {
				return fmt.Errorf("%s has %d messages of %d in %s", s.hub, len(got), len(want), s.leaf)
			}
			if more := ids(held(l.t, leaf, s.leaf, s.subjects)); !slices.Equal(more, got) {
				if len(more) > len(got) && slices.Equal(more[:len(got)], got) {
					return fmt.Errorf("%s has grown", s.leaf)
				}
				l.t.Fatalf("%s has %d messages, %s %d: one is doubled, or not where it was", s.hub, len(got), s.leaf, len(more))
			}
			return nil
		})
	}
}

// kind of stream that a hub sources, of any Site.
type kind struct{ stream, subjects func(string) string }

var kinds = []kind{{wire.ObservationStream, wire.ObservationSubjects}, {wire.NoticeStream, wire.NoticeSubjects}}

// atLeaf counts what the leaf's stream of a kind holds.
func (l *lab) atLeaf(leaf jetstream.JetStream, of kind) (n uint64) {
	l.t.Helper()
	await(l.t, "the leaf's stream is counted", func() (err error) {
		n, err = count(l.t, leaf, of.stream(leafCode), of.subjects(leafCode))
		return err
	})
	return n
}

// leafReceives waits until each of the leaf's streams holds more than when it was called.
func (l *lab) leafReceives() {
	l.t.Helper()
	leaf := l.leaf.JetStream(l.t)
	for _, of := range kinds {
		had := l.atLeaf(leaf, of)
		await(l.t, "the leaf receives", func() error {
			if has := l.atLeaf(leaf, of); has <= had {
				return fmt.Errorf("%s has %d messages, and had %d", of.stream(leafCode), has, had)
			}
			return nil
		})
	}
}

// caughtUp waits until the hub's streams hold as many of the leaf's messages as
// the leaf's did when it was called.
func (l *lab) caughtUp() {
	l.t.Helper()
	hub, leaf := l.hub.JetStream(l.t), l.leaf.JetStream(l.t)
	for _, of := range kinds {
		want := l.atLeaf(leaf, of)
		await(l.t, "the hub has come to what the leaf has", func() error {
			got, err := count(l.t, hub, of.stream(hubCode), of.subjects(leafCode))
			if err == nil && got < want {
				err = fmt.Errorf("%s has %d messages of %d", of.stream(hubCode), got, want)
			}
			return err
		})
	}
}

func count(t *testing.T, js jetstream.JetStream, stream, subjects string) (uint64, error) {
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		return 0, err
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(subjects))
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, messages := range info.State.Subjects {
		n += messages
	}
	return n, nil
}

// atHub reads what the hub's stream of a kind holds of a Site.
func (l *lab) atHub(stream, subjects func(string) string, site string) func() []message {
	return func() []message { return held(l.t, l.hub.JetStream(l.t), stream(hubCode), subjects(site)) }
}
