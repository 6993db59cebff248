// SPDX-License-Identifier: Apache-2.0

package leaf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// A leaf that denies nothing itself, whose clients may do everything there, gets
// nothing of the hub's and changes nothing: what the hub allows it is enough.
func TestLeafReachesNothingOfTheHub(t *testing.T) {
	t.Parallel()
	l := newLab(t, false, nil)
	l.keepApart(l.leaf, l.hub, hubCode)
}

// A hub that allows a leaf's user everything gets no more of the leaf's than what
// it sources: what the leaf denies is enough. And nothing goes the other way.
func TestHubReachesNothingOfTheLeaf(t *testing.T) {
	t.Parallel()
	l := newLab(t, true, func(u *bus.JetStreamUser) { u.Publish, u.Subscribe = []string{">"}, []string{">"} })
	heard := listen(t, l.leaf.Connect(t), ">")
	l.keepApart(l.hub, l.leaf, leafCode)
	l.speak(l.hub, hubCode)
	l.linked()
	l.heardNothing(heard, hubCode)
}

// keepApart tries from one server, with a user that may do everything there, to
// write and read what is the other's, while the hub sources from the leaf.
func (l *lab) keepApart(from, to *testenv.NATSServer, code string) {
	t := l.t
	t.Helper()
	l.linked()
	js := to.JetStream(t)
	before := l.contents(js, code)

	stolen := listen(t, from.Connect(t), "stolen")
	l.intrude(from.Connect(t), code)
	heard := listen(t, from.Connect(t), ">") // now: to a request, one who hears everything is one who may answer
	l.speak(to, code)
	l.linked() // whatever was on its way has come
	l.heardNothing(heard, code)
	l.heardNothing(stolen, code)

	after := l.contents(js, code)
	for name, messages := range before {
		for _, m := range after[name][len(messages):] {
			if string(m.data) != own+code && string(m.data) != tick {
				t.Errorf("%s holds %q on %s", name, m.data, m.subject)
			}
		}
		if name != "KV_"+wire.RegistryBucket(code) && len(after[name]) == len(messages) {
			t.Errorf("%s does not hold its own", name)
		}
	}
}

// The payloads that the tests publish: the server's own, one that must not come from elsewhere,
// and one that shows that the link stands.
const (
	own     = "own of "
	foreign = "from elsewhere"
	tick    = "tick"
)

// intrude publishes where only the other server's programs may, and asks its JetStream for what only they may have. A server refuses by
// answering at once that there is no responder, or answers for itself; silence is neither.
func (l *lab) intrude(nc *nats.Conn, code string) {
	t := l.t
	t.Helper()
	registry, notices := "KV_"+wire.RegistryBucket(code), wire.NoticeStream(code)
	for _, subject := range []string{
		wire.ObservationSubject(code, mag, "raw"), wire.NoticeSubject(code, camera), wire.GapSubject(code, "consumer"),
		wire.HealthSubject(code, "Instrument", camera), "$KV." + wire.RegistryBucket(code) + "." + wire.RegistryCompleteKey,
		"$JS." + code + ".API.$KV." + wire.RegistryBucket(code) + "." + wire.RegistryCompleteKey,
	} {
		publish(t, nc, subject, foreign)
	}
	theft := fmt.Sprintf(`{"stream_name":%q,"config":{"name":"thief","ack_policy":"none","deliver_subject":"stolen"}}`, registry)
	for _, request := range [][2]string{
		{"INFO", ""}, {"STREAM.NAMES", ""}, {"STREAM.INFO." + registry, ""}, {"STREAM.DELETE." + notices, ""}, {"STREAM.PURGE." + notices, ""},
		{"STREAM.MSG.GET." + registry, `{"seq":1}`}, {"DIRECT.GET." + registry, `{"seq":1}`}, {"DIRECT.GET." + notices, `{"seq":1}`},
		{"CONSUMER.MSG.NEXT." + notices + ".own", ""}, {"CONSUMER.NAMES." + notices, ""},
		{"CONSUMER.CREATE." + registry, strings.Replace(theft, `"name":"thief",`, "", 1)}, {"CONSUMER.CREATE." + registry + ".thief", theft},
	} {
		for _, api := range []string{"$JS.API.", "$JS." + code + ".API."} {
			answer, err := nc.Request(api+request[0], []byte(request[1]), testenv.Patience)
			switch {
			case errors.Is(err, nats.ErrNoResponders): // the link lets nothing of it through
			case err != nil:
				t.Errorf("%s%s is not refused: %v", api, request[0], err)
			case speaksOf(answer, code):
				t.Errorf("%s%s is answered: %.200s", api, request[0], answer.Data)
			}
		}
	}
}

// speak publishes messages that only the server's own programs may receive.
func (l *lab) speak(server *testenv.NATSServer, code string) {
	l.t.Helper()
	nc := server.Connect(l.t)
	for _, subject := range []string{
		wire.ObservationSubject(code, mag, "raw"), wire.NoticeSubject(code, camera), wire.HealthSubject(code, "Instrument", camera),
		wire.GapSubject(code, "consumer"), "$KV." + wire.StatusBucket(code) + ".own", "_INBOX.anybody",
	} {
		publish(l.t, nc, subject, own+code)
	}
}

// heardNothing fails where something came over the link but what the hub sources
// from the leaf.
func (l *lab) heardNothing(heard func() []*nats.Msg, code string) {
	l.t.Helper()
	for _, m := range heard() {
		sourced := code == leafCode && (strings.HasPrefix(m.Subject, "obs.") || strings.HasPrefix(m.Subject, "notice."))
		if (string(m.Data) == own+code || m.Subject == "stolen") && !sourced {
			l.t.Errorf("a message on %s came over the link", m.Subject)
		}
	}
}

// speaksOf says whether an answer is from the JetStream of that code: it names
// what only that one has. Each server answers for itself.
func speaksOf(answer *nats.Msg, code string) bool {
	text := string(answer.Data)
	if strings.Contains(text, `"error"`) || answer.Header.Get("Status") != "" {
		return false
	}
	return strings.Contains(text, "_"+code) || strings.Contains(text, `"domain":"`+code+`"`) || strings.Contains(text, `"success":true`) ||
		strings.Contains(answer.Subject, code) || answer.Header.Get("Nats-Stream") != ""
}

// linked waits until something that the leaf publishes is at the hub: the link
// stands.
func (l *lab) linked() {
	l.t.Helper()
	leaf, hub := l.leaf.JetStream(l.t), l.hub.JetStream(l.t)
	if s, err := hub.Stream(l.t.Context(), wire.ObservationStream(hubCode)); err == nil && len(s.CachedInfo().Config.Sources) == 0 {
		testenv.AddLeaf(l.t, l.hub, hubCode, leafCode)
	}
	ack, err := leaf.Publish(l.t.Context(), wire.ObservationSubject(leafCode, "link", "raw"), []byte(tick))
	if err != nil {
		l.t.Fatal(err)
	}
	await(l.t, "the hub sources", func() error {
		n, err := count(l.t, hub, wire.ObservationStream(hubCode), wire.ObservationSubjects(leafCode))
		if err == nil && n < ack.Sequence {
			err = fmt.Errorf("%d messages of %d", n, ack.Sequence)
		}
		return err
	})
}

// contents reads a Site's base streams and two of its buckets.
func (l *lab) contents(js jetstream.JetStream, code string) map[string][]message {
	l.t.Helper()
	all := map[string][]message{}
	for _, name := range []string{wire.ObservationStream(code), wire.NoticeStream(code), "KV_" + wire.RegistryBucket(code), "KV_" + wire.StatusBucket(code)} {
		all[name] = held(l.t, js, name, ">")
	}
	return all
}

func publish(t *testing.T, nc *nats.Conn, subject, text string) {
	t.Helper()
	if err := nc.Publish(subject, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// listen hears what its server sees of a subject.
func listen(t *testing.T, nc *nats.Conn, subject string) (heard func() []*nats.Msg) {
	t.Helper()
	var mu sync.Mutex
	var all []*nats.Msg
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return func() []*nats.Msg {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// The credentials of a leaf open no client connection.
func TestLeafCredentialsLetNoClientIn(t *testing.T) {
	t.Parallel()
	l := newLab(t, false, nil)
	l.linked()
	user := bus.LeafUser(hubSite(), hubSite().Spec.Leaves[0])
	nc, err := nats.Connect(l.hub.URL(), nats.Secure(l.hub.CA.ClientTLS()), nats.UserCredentials(creds(t, l.hub, user)))
	if err == nil {
		nc.Close()
		t.Fatal("a client came in with the credentials of a leaf")
	}
	user.LeafOnly = false
	nc, err = nats.Connect(l.hub.URL(), nats.Secure(l.hub.CA.ClientTLS()), nats.UserCredentials(creds(t, l.hub, user)))
	if err != nil {
		t.Fatalf("the same user without the restriction: %v", err)
	}
	nc.Close()
}
