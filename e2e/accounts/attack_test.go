// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A request is something that a credential may want to have done. The names are the columns of the table in
// docs/explanation/security.md.
type request struct {
	name string
	// subject and payload do it, published in the account SUBSTORM. With an empty payload any empty message there does.
	subject, payload string
	// messages do it, in place of subject and payload: no means is known to have a server send such ones.
	messages func(a attackerConn) []*nats.Msg
	// done says whether it happened.
	done func(l *lab) bool
}

const (
	putKey   = "attack"
	notices  = "NOTICE_" + code
	obs      = "OBS_" + code
	ledger   = "KV_LEDGER_" + code
	registry = "KV_REGISTRY_" + code
)

// requests are tried in this order: those that leave the others' streams as they are come first.
var requests = []request{
	{name: "publish a notice", subject: wire.NoticeSubject(code, camera), payload: "{}", done: func(l *lab) bool {
		return l.stream(notices).State.LastSeq > stored
	}},
	{name: "publish a level", subject: wire.SurgeSubject(code), payload: "{}", done: func(l *lab) bool {
		s, err := l.js.Stream(l.t.Context(), notices)
		if err != nil {
			l.t.Fatal(err)
		}
		_, err = s.GetLastMsgForSubject(l.t.Context(), wire.SurgeSubject(code))
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			l.t.Fatal(err)
		}
		return err == nil
	}},
	{name: "put a key", subject: "$KV." + wire.RegistryBucket(code) + "." + putKey, payload: "{}", done: func(l *lab) bool {
		kv, err := l.js.KeyValue(l.t.Context(), wire.RegistryBucket(code))
		if err != nil {
			l.t.Fatal(err)
		}
		_, err = kv.Get(l.t.Context(), putKey)
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			l.t.Fatal(err)
		}
		return err == nil
	}},
	{name: "STREAM.MSG.DELETE", subject: "$JS.API.STREAM.MSG.DELETE." + obs, payload: `{"seq":2}`, done: func(l *lab) bool { return l.stream(obs).State.NumDeleted > 0 }},
	{name: "CONSUMER.DELETE", subject: "$JS.API.CONSUMER.DELETE." + obs + "." + durable(other), done: func(l *lab) bool {
		_, err := l.js.Consumer(l.t.Context(), obs, durable(other))
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			l.t.Fatal(err)
		}
		return err != nil
	}},
	{name: "Nats-Rollup", messages: rollups, done: func(l *lab) bool { return len(l.rolledUp()) > 0 }},
	{name: "STREAM.PURGE", subject: "$JS.API.STREAM.PURGE." + ledger, done: func(l *lab) bool { return l.stream(ledger).State.Msgs == 0 }},
	{name: "STREAM.DELETE", subject: "$JS.API.STREAM.DELETE." + ledger, done: func(l *lab) bool { return l.stream(ledger) == nil }},
}

// stored is how many notices and telemetry messages there are.
const stored = 5

// fill stores what the requests are about, and messages that hold what attacks need: an attacker may have had them
// stored, by an instrument or otherwise.
func (l *lab) fill() {
	l.t.Helper()
	if _, err := l.js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: canary, Subjects: []string{"canary.>"}, AllowDirect: true}); err != nil {
		l.t.Fatal(err)
	}
	for _, name := range []string{obs, notices} {
		if _, err := l.js.CreateConsumer(l.t.Context(), name, jetstream.ConsumerConfig{Durable: guard, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			l.t.Fatal(err)
		}
	}
	for range stored - 1 {
		l.publish(wire.NoticeSubject(code, camera), "{}")
		l.publish(wire.ObservationSubject(code, mag, "raw"), "datagram")
	}
	l.publish(wire.NoticeSubject(code, camera), "")
	l.publish(wire.ObservationSubject(code, mag, "raw"), `{"seq":2}`)
	for _, bucket := range lasting() {
		l.publish("$KV."+bucket+".empty", "")
		l.publish("$KV."+bucket+".delete", `{"seq":2}`)
	}
}

// A trigger is a request whose answer, or whose effect, is a message at a subject of the attacker's choice.
type trigger struct {
	name, subject, payload string
	// deliver has the target in the payload, and not as the reply subject.
	deliver bool
}

// streams that triggers are tried at.
var streams = []string{obs, notices, ledger, registry, "KV_STATUS_" + code, "KV_GAPS_" + code, "KV_CURSOR_" + code}

// subjectOf is one in a stream whose last message is empty, or holds what MSG.DELETE takes.
func subjectOf(stream string, empty bool) string {
	bucket, isBucket := strings.CutPrefix(stream, "KV_")
	switch {
	case isBucket && empty:
		return "$KV." + bucket + ".empty"
	case isBucket:
		return "$KV." + bucket + ".delete"
	case empty:
		return wire.NoticeSubject(code, camera)
	default:
		return wire.ObservationSubject(code, mag, "raw")
	}
}

// triggers of a credential that has JetStream's API under a prefix, and a consumer of a name.
func triggers(api, consumer string) []trigger {
	all := []trigger{{name: "INFO", subject: api + ".INFO"}}
	add := func(name, subject, payload string) {
		all = append(all, trigger{name: name, subject: subject, payload: payload})
	}
	for _, s := range streams {
		own := s + "." + consumer
		add("a malformed pull", api+".CONSUMER.MSG.NEXT."+own, "{")
		add("a pull", api+".CONSUMER.MSG.NEXT."+own, `{"batch":1,"no_wait":true}`)
		add("an acknowledgement that asks for more", "$JS.ACK."+own+".1.1.1.1.1", "+NXT {")
		add("the same, with the domain", "$JS.ACK._.ACC."+own+".1.1.1.1.1", "+NXT {")
		add("CONSUMER.INFO", api+".CONSUMER.INFO."+own, "")
		add("STREAM.INFO", api+".STREAM.INFO."+s, "")
		add("STREAM.MSG.GET", api+".STREAM.MSG.GET."+s, `{"seq":1}`)
		add("a malformed DIRECT.GET", api+".DIRECT.GET."+s, "{")
		for _, empty := range []bool{true, false} {
			subject := subjectOf(s, empty)
			add("DIRECT.GET of a message", api+".DIRECT.GET."+s+"."+subject, "")
			config := fmt.Sprintf(`{"stream_name":%q,"config":{"name":"push%t","deliver_subject":"TARGET","deliver_policy":"last_per_subject","ack_policy":"none","filter_subject":%q}}`, s, empty, subject)
			all = append(all,
				trigger{"CONSUMER.CREATE with deliver_subject", fmt.Sprintf("%s.CONSUMER.CREATE.%s.push%t.%s", api, s, empty, subject), config, true},
				trigger{"the same, without a filter in the subject", fmt.Sprintf("%s.CONSUMER.CREATE.%s.push%t", api, s, empty), config, true})
		}
	}
	return all
}

// A forgery has a server that takes it for a message of JetStream's publish to a subject.
type forgery struct {
	name string
	send func(target string)
}

// canary is a stream that is purged to see that attacks have had their effect, by way of the consumers guard.
const canary, guard = "CANARY", "guard"

// own makes a pull consumer in each stream, where the credential may.
func own(nc *nats.Conn, api, consumer string) {
	for _, s := range streams {
		for _, subject := range []string{subjectOf(s, true), subjectOf(s, false)} {
			body, _ := json.Marshal(map[string]any{"stream_name": s, "config": map[string]any{"name": consumer, "ack_policy": "explicit", "filter_subject": subject}})
			_ = nc.Publish(api+".CONSUMER.CREATE."+s+"."+consumer+"."+subject, body)
			body, _ = json.Marshal(map[string]any{"stream_name": s, "config": map[string]any{"name": consumer, "ack_policy": "explicit"}})
			_ = nc.Publish(api+".CONSUMER.CREATE."+s+"."+consumer, body)
		}
	}
}

// directly is the means of a credential that has the right to a request.
const directly = "directly"

// attack tries by every means to have a request done, and returns the first that worked; empty if none did.
func (l *lab) attack(a attackerConn, r request) string {
	l.t.Helper()
	try := func(send func(publish func(subject, reply, payload string))) bool {
		send(func(subject, reply, payload string) {
			if err := a.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(payload)}); err != nil {
				l.t.Fatal(err)
			}
		})
		a.arrived()
		l.settle()
		return r.done(l)
	}
	if r.messages != nil {
		if try(func(func(subject, reply, payload string)) {
			for _, m := range r.messages(a) {
				if err := a.nc.PublishMsg(m); err != nil {
					l.t.Fatal(err)
				}
			}
		}) {
			return directly
		}
		return ""
	}
	if try(func(publish func(subject, reply, payload string)) { publish(r.subject, "", r.payload) }) {
		return directly
	}
	targets := []string{r.subject}
	if rest, is := strings.CutPrefix(r.subject, "$JS.API"); is && a.api != "$JS.API" {
		targets = append(targets, a.api+rest)
	}
	for _, f := range a.forgeries {
		if try(func(func(subject, reply, payload string)) {
			for _, to := range targets {
				f.send(to)
			}
		}) {
			return f.name
		}
	}
	all := triggers(a.api, a.consumer)
	for i := 0; i < len(all); {
		name := all[i].name
		if try(func(publish func(subject, reply, payload string)) {
			for ; i < len(all) && all[i].name == name; i++ {
				for _, to := range targets {
					if all[i].deliver {
						publish(all[i].subject, "", strings.ReplaceAll(all[i].payload, "TARGET", to))
					} else {
						publish(all[i].subject, to, all[i].payload)
					}
				}
			}
		}) {
			return name
		}
	}
	return ""
}

// attackerConn is a connection with a credential.
type attackerConn struct {
	nc *nats.Conn
	// api begins the subjects of JetStream's API, and consumer is the attacker's own in the streams.
	api, consumer string
	// publishes are the subjects that the credential may publish on.
	publishes []string
	// forgeries are a leaf's.
	forgeries []forgery
	// arrived waits until the server has what was sent.
	arrived func()
}

// settle waits until the servers have done with what they have got: what comes after it, by the same ways, has had its
// effect. So what had none has been refused, and an attack of this kind does work.
func (l *lab) settle() {
	l.t.Helper()
	if l.settleLeaf != nil {
		l.settleLeaf()
	}
	nc := l.js.Conn()
	answer := func(subject, payload string) {
		if _, err := nc.Request(subject, []byte(payload), testenv.Patience); err != nil {
			l.t.Fatalf("%s: %v", subject, err)
		}
	}
	for _, name := range append(slices.Clone(streams), canary) {
		if l.stream(name) == nil {
			continue
		}
		l.settlePushed(name)
		answer("$JS.API.DIRECT.GET."+name, "{")
	}
	for _, name := range []string{obs, notices} {
		if l.stream(name) == nil {
			continue
		}
		l.publish("canary.x", "x")
		if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+name+"."+guard, "$JS.API.STREAM.PURGE."+canary, []byte("{")); err != nil {
			l.t.Fatal(err)
		}
		l.await("the same attack without a boundary has its effect", func() bool { return l.stream(canary).State.Msgs == 0 })
	}
}

// settlePushed waits until push consumers with a listening subscriber have pushed all, and removes the consumers.
func (l *lab) settlePushed(name string) {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), name)
	if err != nil {
		l.t.Fatal(err)
	}
	list := s.ListConsumers(l.t.Context())
	for c := range list.Info() {
		if c.Config.DeliverSubject == "" {
			continue
		}
		l.await("pushed", func() bool {
			var info struct {
				Pending int  `json:"num_pending"`
				Bound   bool `json:"push_bound"`
			}
			m, err := l.js.Conn().Request("$JS.API.CONSUMER.INFO."+name+"."+c.Name, nil, testenv.Patience)
			return err == nil && json.Unmarshal(m.Data, &info) == nil && (info.Pending == 0 || !info.Bound)
		})
		if _, err := l.js.Conn().Request("$JS.API.CONSUMER.DELETE."+name+"."+c.Name, nil, testenv.Patience); err != nil {
			l.t.Fatal(err)
		}
	}
	if list.Err() != nil {
		l.t.Fatal(list.Err())
	}
}
